// SPDX-License-Identifier: Apache-2.0
// Images, histograms and texts, of each run in turn.
'use strict';

function itemsOf(kind) {
  return shownRuns().flatMap((run) => Object.entries(run.data[kind] || {}).map(([name, items]) => (
      {key: `${run.name}\n${name}`, title: isComparison() ? `${run.name}: ${name}` : name, items})));
}

const imageCards = new Map();

function updateImages() {
  const all = itemsOf('images');
  byId('images').hidden = all.length === 0;
  keepCards(byId('image-cards'), imageCards, all, makeImageCard);
}

// Makes the cards that are missing, and shows those that are wanted, in order.
function keepCards(host, cards, all, make) {
  for (const entry of all) {
    if (!cards.has(entry.key)) cards.set(entry.key, make(entry.title));
    cards.get(entry.key).update(entry.items);
  }
  const wanted = all.map((entry) => cards.get(entry.key).card);
  if (wanted.some((card, i) => host.children[i] !== card) || host.children.length !== wanted.length) {
    host.replaceChildren(...wanted);
  }
}

function makeImageCard(title) {
  const picture = element('img', {});
  const caption = element('figcaption', {});
  const slider = element('input', {type: 'range', min: 0, 'aria-label': `Step of ${title}`});
  const card = element('article', {className: 'card', 'aria-label': title}, element('h3', {}, title),
                       element('div', {className: 'images'}, element('figure', {}, picture, caption)), slider);
  let items = [];
  const show = () => {
    const item = items[Number(slider.value)];
    picture.src = `data:image/png;base64,${item.png}`;
    picture.alt = `${title} at step ${item.step}`;
    caption.textContent = `step ${item.step}`;
    slider.setAttribute('aria-valuetext', `step ${item.step}`);
  };
  slider.addEventListener('input', show);
  const update = (newItems) => {
    const wasLast = items.length === 0 || Number(slider.value) === items.length - 1;
    items = newItems;
    slider.max = items.length - 1;
    if (wasLast) slider.value = items.length - 1;
    slider.hidden = items.length < 2;
    show();
  };
  return {card, update};
}

function updateHistograms() {
  const all = itemsOf('histograms');
  byId('histograms').hidden = all.length === 0;
  keepCards(byId('histogram-cards'), state.histograms, all, makeHistogramCard);
}

function makeHistogramCard(title) {
  const host = element('div', {className: 'plot', role: 'img'});
  const table = element('div', {className: 'scroll', tabIndex: 0, role: 'region', 'aria-label': `Percentiles of ${title}`});
  const details = element('details', {}, element('summary', {}, 'Table'), table);
  const card = element('article', {className: 'card', 'aria-label': title}, element('h3', {}, title), host,
                       element('div', {className: 'card-foot'}, details));
  const chart = new HistogramChart(host, (item, event) => {
    if (!item) { hideTip(); return; }
    showTip(event, host, [element('div', {className: 'where'}, `step ${item.step}`),
                          element('div', {}, describeHistogram(item))]);
  });
  watchHost(host, chart);
  const fillTable = () => { if (details.open) table.replaceChildren(histogramTable(chart.items)); };
  details.addEventListener('toggle', fillTable);
  const update = (items) => {
    chart.setItems(items);
    const last = items.at(-1);
    host.setAttribute('aria-label', `${title}. At step ${last.step}: ${describeHistogram(last)}.`);
    fillTable();
    drawSoon(chart);
  };
  return {card, chart, update};
}

const kShares = [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1];
function describeHistogram(item) {
  return `from ${formatNumber(item.low)} to ${formatNumber(item.high)}, half below ${formatNumber(percentile(item, 0.5))}`;
}
function histogramTable(items) {
  const titles = ['Step', ...kShares.map((share) => share === 0 ? 'Least' : share === 1 ? 'Greatest' : `${share * 100} %`)];
  const head = element('tr', {}, ...titles.map((title) => element('th', {scope: 'col', className: 'number'}, title)));
  const rows = items.map((item) => element('tr', {}, ...[item.step, ...kShares.map((share) => (
      share === 0 ? item.low : share === 1 ? item.high : percentile(item, share)))]
      .map((value, i) => element('td', {className: 'number'}, i === 0 ? String(value) : formatNumber(value)))));
  return element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows));
}

// Of Markdown, which TensorBoard shows in full, what is most common: **strong** and `code`.
function markedText(text) {
  return text.split(/(\*\*[^*\n]+\*\*|`[^`\n]+`)/).map((part, i) => (
      i % 2 === 0 ? part : part[0] === '`' ? element('code', {}, part.slice(1, -1)) : element('strong', {}, part.slice(2, -2))));
}

function updateTexts() {
  const all = itemsOf('texts');
  byId('texts').hidden = all.length === 0;
  byId('text-list').replaceChildren(...all.map(({title, items}) => element(
      'article', {className: 'card', 'aria-label': title},
      element('div', {className: 'card-head'}, element('h3', {}, title),
              element('span', {className: 'value'}, `step ${items.at(-1).step}`)),
      element('p', {className: 'text', tabIndex: 0}, ...markedText(items.at(-1).text)))));
}
