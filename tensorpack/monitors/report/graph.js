// SPDX-License-Identifier: Apache-2.0
// The layers as a tree.
'use strict';

// Layers come with their paths, "block/conv0"; the tree has a node for every part of a path.
function layerTree(layers) {
  const root = {name: '', path: '', children: new Map(), layer: null};
  for (const layer of layers) {
    let node = root;
    for (const part of layer.path === '' ? [] : layer.path.split('/')) {
      const path = node.path === '' ? part : `${node.path}/${part}`;
      if (!node.children.has(part)) node.children.set(part, {name: part, path, children: new Map(), layer: null});
      node = node.children.get(part);
    }
    node.layer = layer;
  }
  return root;
}

function sumOver(node, field) {
  let sum = node.layer && node.layer[field] ? node.layer[field] : 0;
  for (const child of node.children.values()) sum += sumOver(child, field);
  return sum;
}

const kLayerColumns = [
  {title: 'Parameters', field: 'parameters', text: (value) => value.toLocaleString('en')},
  {title: 'Operators', field: 'count', text: String},
  {title: 'Forward', field: 'forward', text: formatDuration},
  {title: 'Backward', field: 'backward', text: formatDuration},
  {title: 'Memory', field: 'bytes', text: formatBytes},
];

function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit < units.length - 1; ++unit) bytes /= 1024;
  return `${Number(bytes.toPrecision(3))} ${units[unit]}`;
}

function layerRows(node, depth, columns) {
  return [...node.children.values()].map((child) => {
    const shape = child.layer && child.layer.shape ? child.layer.shape : '';
    // Heard without the head of the column, a number says nothing: each carries its title, unseen.
    const labelled = (className, title, text) => element(
        'span', {className}, ...(text === '' ? [] : [element('span', {className: 'unseen'}, `, ${title} `), text]));
    const cells = [element('span', {className: 'layer-name'}, child.name), labelled('mono', 'output', shape),
                   ...columns.map(({title, field, text}) => {
                     const sum = sumOver(child, field);
                     return labelled('number', title, sum > 0 ? text(sum) : '');
                   })];
    const inner = [...layerRows(child, depth + 1, columns), ...operatorRows(child.layer, depth + 1)];
    const row = element(inner.length > 0 ? 'summary' : 'div', {className: 'layer-row'}, ...cells);
    row.style.setProperty('--depth', depth);
    return inner.length > 0 ? element('details', {}, row, ...inner) : row;
  });
}

function operatorRows(layer, depth) {
  if (!layer) return [];
  const more = layer.count - layer.operators.length;
  const rows = more > 0 ? [...layer.operators, [`and ${more} more`, '']] : layer.operators;
  return rows.map(([name, shape]) => {
    const row = element('div', {className: 'layer-row operator'},
                        element('span', {className: 'layer-name mono'}, name),
                        element('span', {className: 'mono'}, shape));
    row.style.setProperty('--depth', depth);
    return row;
  });
}

function makeTree(layers) {
  const root = layerTree(layers);
  const columns = kLayerColumns.filter(({field}) => layers.some((layer) => layer[field] > 0));
  const head = element('div', {className: 'layer-row layer-head', 'aria-hidden': 'true'},
                       element('span', {}, 'Layer'), element('span', {}, 'Output'),
                       ...columns.map(({title}) => element('span', {className: 'number'}, title)));
  // What ran in no scope, as updates do, stands beside the layers.
  const others = {name: '(no layer)', path: '', children: new Map(), layer: root.layer};
  if (root.layer) root.children.set('', others);
  const rows = element('div', {className: 'tree-rows'}, head, ...layerRows(root, 0, columns));
  rows.style.setProperty('--columns', columns.length);
  return element('div', {className: 'tree', tabIndex: 0, role: 'region', 'aria-label': 'Layers'}, rows);
}

function updateGraph() {
  const runs = shownRuns().filter((run) => (run.data.layers || []).length > 0);
  byId('graph').hidden = runs.length === 0;
  const key = JSON.stringify(runs.map((run) => [run.name, run.data.layers]));
  if (byId('layers').dataset.key === key) return;  // what is open stays open
  byId('layers').dataset.key = key;
  byId('layers').replaceChildren(...runs.flatMap((run) => [
    ...(isComparison() ? [element('h3', {}, run.name)] : []), makeTree(run.data.layers)]));
}

function openLayers(isOpen) {
  for (const details of document.querySelectorAll('.tree details')) details.open = isOpen;
}
