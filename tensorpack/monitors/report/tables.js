// SPDX-License-Identifier: Apache-2.0
// Facts, parameters, the log, and what several runs differ in.
'use strict';

// ---- Facts: a column for each run.

function factsTable(rows, names) {
  const body = rows.map(([title, values]) => element(
      'tr', {}, element('th', {scope: 'row'}, title), ...values.map((value) => element('td', {}, value || ''))));
  const head = names.length < 2 ? [] : [element('thead', {}, element(
      'tr', {}, element('th', {}), ...names.map((name) => element('th', {scope: 'col'}, name))))];
  return element('table', {className: 'facts'}, ...head, element('tbody', {}, ...body));
}

// [[name, value]] of each run -> [name, [value of each run]], in the order of their first appearance.
function joinFacts(lists) {
  const titles = [...new Set(lists.flatMap((list) => list.map(([title]) => title)))];
  const maps = lists.map((list) => new Map(list));
  return titles.map((title) => [title, maps.map((map) => map.get(title))]);
}

function updateFacts(section, factsOf) {
  const runs = shownRuns();
  const rows = joinFacts(runs.map((run) => factsOf(run.data)));
  byId(section).hidden = rows.length === 0;
  byId(section + '-table').replaceChildren(factsTable(rows, runs.map((run) => run.name)));
}

// ---- The parameters: a table that can be sorted.

const kParameterColumns = [
  {title: 'Name', of: (row) => row.name},
  {title: 'Shape', of: (row) => row.shape, isMono: true},
  {title: 'Elements', of: (row) => row.elements, isNumber: true},
  {title: 'Size', of: (row) => row.bytes, text: (row) => formatBytes(row.bytes), isNumber: true},
  {title: 'Type', of: (row) => row.dtype},
  {title: 'Device', of: (row) => row.device},
  {title: 'Trained', of: (row) => row.trained ? 'yes' : 'no'},
];
let parameterOrder = null;  // {column, descending}

function updateParameters() {
  const runs = shownRuns().filter((run) => (run.data.parameters || []).length > 0);
  byId('parameters').hidden = runs.length === 0;
  byId('parameter-table').replaceChildren(...runs.map(parameterTable));
}

function parameterTable(run) {
  const rows = [...run.data.parameters];
  if (parameterOrder) {
    const {of} = kParameterColumns[parameterOrder.column];
    const sign = parameterOrder.descending ? -1 : 1;
    rows.sort((a, b) => sign * ((of(a) > of(b)) - (of(a) < of(b))));
  }
  const most = Math.max(1, ...rows.map((row) => row.elements));
  const body = rows.map((row) => element('tr', {}, ...kParameterColumns.map((column, i) => parameterCell(row, column, i, most))));
  const elements = rows.reduce((sum, row) => sum + row.elements, 0);
  const trained = rows.reduce((sum, row) => sum + (row.trained ? row.elements : 0), 0);
  const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
  const foot = element('tr', {}, element('th', {scope: 'row'}, `${rows.length} parameters`),
                       element('td', {}, `${trained.toLocaleString('en')} elements are trained`),
                       element('td', {className: 'number'}, elements.toLocaleString('en')),
                       element('td', {className: 'number'}, formatBytes(bytes)),
                       element('td', {colSpan: kParameterColumns.length - 4}));
  return element('table', {}, ...(isComparison() ? [element('caption', {}, run.name)] : []),
                 element('thead', {}, element('tr', {}, ...kParameterColumns.map(parameterHead))),
                 element('tbody', {}, ...body), element('tfoot', {}, foot));
}

function parameterCell(row, column, i, most) {
  if (i === 0) return element('th', {scope: 'row'}, row.name);
  const cell = element('td', {className: column.isNumber ? 'number' : column.isMono ? 'mono' : ''});
  cell.append(column.text ? column.text(row) : column.of(row).toLocaleString('en'));
  if (column.title === 'Elements') {
    const bar = element('span', {className: 'bar'});
    bar.style.width = `${100 * row.elements / most}%`;
    cell.append(bar);
  }
  return cell;
}

function parameterHead(column, i) {
  const order = parameterOrder && parameterOrder.column === i ? parameterOrder : null;
  const arrow = order ? (order.descending ? ' \u25BE' : ' \u25B4') : '';
  const button = element('button', {type: 'button'}, column.title + arrow);
  button.addEventListener('click', () => {
    parameterOrder = {column: i, descending: order ? !order.descending : Boolean(column.isNumber)};
    updateParameters();
    document.querySelectorAll('#parameter-table thead button')[i].focus();
  });
  const sort = order ? (order.descending ? 'descending' : 'ascending') : 'none';
  return element('th', {scope: 'col', className: column.isNumber ? 'number' : '', 'aria-sort': sort}, button);
}

// ---- The stages of the data.

const kStageColumns = [
  {title: 'Threads', text: (stage) => stage.threads || ''},
  {title: 'Busy', text: (stage) => formatDuration(stage.busy)},
  {title: 'Waiting for data', text: (stage) => formatDuration(stage.no_input)},
  {title: 'Waiting for room', text: (stage) => formatDuration(stage.no_room)},
  {title: 'Queue', text: (stage) => stage.capacity ? `${stage.queue.toFixed(1)} of ${stage.capacity}` : ''},
];

function updateStages() {
  const runs = shownRuns().filter((run) => (run.data.stages || []).length > 0);
  byId('stages').hidden = runs.length === 0;
  byId('stage-table').replaceChildren(...runs.map(stageTable));
}

function stageTable(run) {
  const head = element('tr', {}, element('th', {scope: 'col'}, 'Stage'), ...kStageColumns.map(
      (column) => element('th', {scope: 'col', className: 'number'}, column.title)));
  const rows = run.data.stages.map((stage) => element(
      'tr', {}, element('th', {scope: 'row'}, stage.name),
      ...kStageColumns.map((column) => element('td', {className: 'number'}, column.text(stage)))));
  return element('table', {}, ...(isComparison() ? [element('caption', {}, run.name)] : []),
                 element('thead', {}, head), element('tbody', {}, ...rows));
}

// ---- The log.

function updateLog() {
  const runs = shownRuns().filter((run) => run.data.log);
  byId('log-tail').hidden = runs.length === 0;
  const panes = runs.map((run) => {
    const lines = run.data.log.split('\n').flatMap((line) => (
        [/ (WRN|ERR) /.test(line) ? element('span', {className: 'warned'}, line) : line, '\n']));
    const pane = element('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': `Last lines of the log of ${run.name}`},
                         element('pre', {}, ...lines));
    return [...(isComparison() ? [element('h3', {}, run.name)] : []), pane];
  });
  byId('logs').replaceChildren(...panes.flat());
  for (const pane of byId('logs').querySelectorAll('.scroll')) pane.scrollTop = pane.scrollHeight;
}

// ---- Several runs.

function updateRuns() {
  byId('runs').hidden = !isComparison();
  if (!isComparison()) return;
  const list = element('div', {className: 'run-list', role: 'group', 'aria-label': 'Runs that are shown'});
  state.runs.forEach((run, index) => {
    const box = element('input', {type: 'checkbox', checked: run.shown});
    box.addEventListener('change', () => {
      run.shown = box.checked;
      update();
      byId('runs').querySelectorAll('input')[index].focus();
    });
    list.append(element('label', {className: 'check'}, box, swatch(index), run.data ? run.name : `${run.name} (no report yet)`));
  });
  const table = element('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': 'How the runs differ'}, runTable());
  byId('runs').replaceChildren(byId('runs-title'), list, table);
}

// What not all runs have in common of their flags and settings: [name, [value of each run]].
function differences(runs) {
  if (runs.length < 2) return [];
  const flags = joinFacts(runs.map((run) => run.data.flags));
  const names = new Set(flags.map(([title]) => title));
  const settings = joinFacts(runs.map((run) => run.data.configuration)).filter(([title]) => !names.has(title));
  return [...flags, ...settings].filter(([, values]) => new Set(values).size > 1);
}

function runTable() {
  const runs = shownRuns();
  const differing = differences(runs);
  const head = element('tr', {}, ...['Run', 'Progress', ...differing.map(([title]) => title)]
      .map((title) => element('th', {scope: 'col'}, title)));
  const rows = runs.map((run, i) => element(
      'tr', {}, element('th', {scope: 'row'}, run.name), element('td', {}, describeProgress(run.data.progress)),
      ...differing.map(([, values]) => element('td', {}, values[i] === undefined ? '\u2013' : values[i] === '' ? 'set' : values[i]))));
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows));
}
