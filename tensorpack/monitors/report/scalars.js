// SPDX-License-Identifier: Apache-2.0
// A card with a chart and a table for each scalar.
'use strict';

const chartEvents = {
  // The cursor of one chart is shown in all of them.
  onCursor(chart, x, event) {
    for (const other of state.charts.values()) {
      if (other.chart === chart || !visible.has(other.chart.host)) continue;
      other.chart.showCursor(x);
    }
    const readings = chart ? chart.showCursor(x) : [];
    if (readings.length > 0) showTip(event, chart.host, tipLines(readings)); else hideTip();
  },
  onZoom: zoomTo,
  onRead(chart, readings) {
    say(readings.map((reading) => (isComparison() ? state.runs[reading.run].name + ', ' : '') +
                     `${describePlace(reading)}: ${describeValue(reading)}`).join('; '));
  },
};

// "train/cost" belongs to the group "train"; a name without a slash to none. That of "(samples/sec)" is a unit's.
function groupOf(name) {
  const slash = name.replace(/\([^)]*\)/g, (unit) => '_'.repeat(unit.length)).indexOf('/');
  return slash < 0 ? '' : name.slice(0, slash);
}

// As people order names: without regard to case, and layer2 before layer10.
const byName = new Intl.Collator('en', {numeric: true}).compare;

function scalarNames() {
  const names = new Set();
  for (const run of state.runs) for (const name of Object.keys(run.data ? run.data.scalars : {})) names.add(name);
  return [...names].sort(byName);
}

// Group -> its names, those of no group first. A group of one would take a row for a single chart: it is none.
function groupsOf(names) {
  const all = new Map();
  const add = (groups, group, name) => groups.set(group, [...(groups.get(group) || []), name]);
  for (const name of names) add(all, groupOf(name), name);
  const groups = new Map();
  const isGroup = (name) => groupOf(name) !== '' && all.get(groupOf(name)).length > 1;
  for (const name of names) if (!isGroup(name)) add(groups, '', name);
  for (const name of names) if (isGroup(name)) groups.set(groupOf(name), all.get(groupOf(name)));
  return groups;
}

function updateScalars() {
  const names = scalarNames();
  byId('scalars').hidden = names.length === 0;
  for (const name of names) {
    if (!state.charts.has(name)) state.charts.set(name, makeScalarCard(name));
  }
  for (const [name, entry] of state.charts) {
    const series = [];
    state.runs.forEach((run, index) => {
      const isThere = run.shown && run.data && Object.hasOwn(run.data.scalars, name);
      if (isThere) series.push({run: index, ...run.data.scalars[name]});
    });
    entry.chart.setSeries(series);
    entry.update(series);
  }
  placeCards(names);
  filterCharts();
}

// Cards stay where they are when data comes, so that focus and scroll position stay, too.
function placeCards(names) {
  const groups = groupsOf(names);
  const key = [...groups].map(([group, members]) => group + ':' + members.join()).join(';');
  const host = byId('charts');
  if (host.dataset.key === key) return;
  host.dataset.key = key;
  const parts = [...groups].map(([group, members]) => {
    const isTitled = group !== '' && groups.size > 1;
    for (const name of members) state.charts.get(name).title.textContent = isTitled ? name.slice(group.length + 1) : name;
    const grid = element('div', {className: 'grid'}, ...members.map((name) => state.charts.get(name).card));
    if (groups.size === 1) return grid;
    const title = group === '' ? 'General' : group;
    return element('details', {className: 'group', open: true},
                   element('summary', {}, `${title} (${members.length})`), grid);
  });
  host.replaceChildren(...parts);
}

function makeScalarCard(name) {
  const host = element('div', {className: 'plot', tabIndex: 0, role: 'group', 'aria-roledescription': 'line chart',
                               'aria-describedby': 'chart-keys'});
  const title = element('h3', {title: name}, name);  // placeCards() leaves out its group
  const value = element('span', {className: 'value'});
  const table = element('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': `Numbers of ${name}`});
  const details = element('details', {}, element('summary', {}, 'Table'), table);
  const widen = element('button', {type: 'button', className: 'plain', 'aria-expanded': 'false',
                                   'aria-label': `Enlarge ${name}`}, 'Enlarge');
  const card = element('article', {className: 'card', 'aria-label': name},
                       element('div', {className: 'card-head'}, title, value), host,
                       element('div', {className: 'card-foot'}, details, widen));
  const chart = new LineChart(host, name, chartEvents);
  watchHost(host, chart);
  widen.addEventListener('click', () => {
    const isWide = card.classList.toggle('wide');
    widen.textContent = isWide ? 'Shrink' : 'Enlarge';
    widen.setAttribute('aria-label', `${widen.textContent} ${name}`);
    widen.setAttribute('aria-expanded', String(isWide));
  });
  const fillTable = () => { if (details.open) table.replaceChildren(scalarTable(chart.series)); };
  details.addEventListener('toggle', fillTable);
  const update = (series) => {
    host.setAttribute('aria-label', describeSeries(name, series));
    value.textContent = series.length === 1 ? formatNumber(series[0].values.at(-1)) : '';
    fillTable();
    drawSoon(chart);
  };
  return {card, title, chart, update};
}

function describeSeries(name, all) {
  const parts = all.map((series) => {
    const numbers = series.values.filter((value) => typeof value === 'number');
    const low = numbers.reduce((a, b) => Math.min(a, b), Infinity);
    const high = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    const range = numbers.length > 0 ? `, between ${formatNumber(low)} and ${formatNumber(high)}` : '';
    return (isComparison() ? `${state.runs[series.run].name}: ` : '') +
        `latest ${formatNumber(series.values.at(-1))} at step ${series.steps.at(-1)}${range}`;
  });
  return `${name}. ${parts.join('; ') || 'no values'}.`;
}

function scalarTable(all) {
  const head = element('tr', {}, ...(isComparison() ? ['Run'] : []).concat('Step', 'Time', 'Value')
      .map((title) => element('th', {scope: 'col', className: title === 'Run' ? '' : 'number'}, title)));
  const rows = all.flatMap((series) => series.values.map((value, i) => element(
      'tr', {}, ...(isComparison() ? [element('td', {}, state.runs[series.run].name)] : []),
      element('td', {className: 'number'}, String(series.steps[i])),
      element('td', {className: 'number'}, Number.isFinite(series.times[i]) ? formatDuration(series.times[i]) : ''),
      element('td', {className: 'number'}, formatNumber(value)))));
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows));
}

function filterCharts() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  for (const [name, entry] of state.charts) {
    entry.card.hidden = !words.every((word) => name.toLowerCase().includes(word));
  }
  for (const group of document.querySelectorAll('.group')) {
    group.hidden = ![...group.querySelectorAll('.card')].some((card) => !card.hidden);
  }
}
