// SPDX-License-Identifier: Apache-2.0
// What is shown and how: the state of the page, the drawing of charts, the controls and the tip.
//
// Every name and text comes from a training and is shown by textContent: it is never markup.
'use strict';

const byId = (id) => document.getElementById(id);

// element('td', {className: 'number'}, 'text', child): everything on this page is made by it.
function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties || {})) {
    if (name.includes('-') || name === 'role' || name === 'scope') made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

const state = {
  runs: [],  // {name, data, version, shown}
  view: {...kDefaultView},
  find: '',
  charts: new Map(),      // name -> {card, chart, ...}
  histograms: new Map(),  // run and name -> {card, chart, ...}
  palette: null,
};
const shownRuns = () => state.runs.filter((run) => run.shown && run.data);
const isComparison = () => state.runs.length > 1;

// Survives a reload of the page, for as long as its tab is open.
function remember() {
  const {axis, log, smoothing, zoom} = state.view;
  try {
    sessionStorage.setItem(storageKey(), JSON.stringify({axis, log, smoothing, zoom, find: state.find}));
  } catch (error) { /* not allowed here: then nothing is remembered */ }
}
function recall() {
  try {
    const {find, ...view} = JSON.parse(sessionStorage.getItem(storageKey())) || {};
    Object.assign(state.view, view);
    state.find = find || '';
  } catch (error) { /* nothing to recall */ }
}
const storageKey = () => 'tensorpack-report:' + location.pathname;

// ---- Drawing: what changed is drawn in the next frame, and only what can be seen.

const visible = new Set();
const waiting = new Set();
let frame = 0;

function drawSoon(chart) {
  waiting.add(chart);
  if (frame === 0) frame = requestAnimationFrame(drawWaiting);
}
function drawWaiting() {
  frame = 0;
  const charts = [...waiting].filter((chart) => visible.has(chart.host));
  for (const chart of charts) waiting.delete(chart);
  drawNow(charts);
}
function drawNow(charts) {
  for (const chart of charts) chart.measure();
  for (const chart of charts) chart.draw(state.palette, state.view);
}
const allCharts = () => [...state.charts.values(), ...state.histograms.values()].map((entry) => entry.chart);
function redraw() {
  for (const chart of allCharts()) drawSoon(chart);
}

const chartOfHost = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) { visible.delete(entry.target); continue; }
    visible.add(entry.target);
    const chart = chartOfHost.get(entry.target);
    if (chart && waiting.has(chart)) drawSoon(chart);
  }
}, {rootMargin: '200px'});
const resized = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = chartOfHost.get(entry.target);
    if (chart) drawSoon(chart);
  }
});
function watchHost(host, chart) {
  chartOfHost.set(host, chart);
  seen.observe(host);
  resized.observe(host);
}

// ---- The view: one x axis and one zoom for all charts.

function changeView(changes) {
  if (changes.axis && changes.axis !== state.view.axis) changes.zoom = null;
  state.view = {...state.view, ...changes};
  showControls();
  remember();
  redraw();
}

function zoomTo(range) {
  if (range && !(range[1] - range[0] > (state.view.axis === 'step' ? 0.5 : 0.01))) return;
  changeView({zoom: range});
  if (range) {
    const text = state.view.axis === 'time' ? formatDuration : (x) => formatCount(Math.round(x));
    say(`Showing ${state.view.axis} ${text(range[0])} to ${text(range[1])}.`);
  } else {
    say('Showing all.');
  }
}

function showControls() {
  const {axis, log, smoothing, zoom} = state.view;
  for (const radio of document.querySelectorAll('input[name=axis]')) radio.checked = radio.value === axis;
  byId('log').checked = log;
  byId('smoothing').value = smoothing;
  byId('smoothing-value').textContent = smoothing === 0 ? 'off' : smoothing;
  byId('reset').disabled = zoom === null;
  byId('find').value = state.find;
}

function listenToControls() {
  for (const radio of document.querySelectorAll('input[name=axis]')) {
    radio.addEventListener('change', () => changeView({axis: radio.value}));
  }
  byId('log').addEventListener('change', (event) => changeView({log: event.target.checked}));
  byId('smoothing').addEventListener('input', (event) => changeView({smoothing: Number(event.target.value)}));
  byId('reset').addEventListener('click', () => zoomTo(null));
  byId('find').addEventListener('input', (event) => {
    state.find = event.target.value;
    filterCharts();
    remember();
  });
  byId('expand').addEventListener('click', () => openLayers(true));
  byId('collapse').addEventListener('click', () => openLayers(false));
}

function say(text) { byId('spoken').textContent = text; }

// ---- The tip that follows the cursor.

function showTip(event, host, lines) {
  const tip = byId('tip');
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const box = host.getBoundingClientRect();
  const x = event ? event.clientX : box.left + box.width / 2;
  const y = event ? event.clientY : box.top;
  const {width, height} = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y - height - 12, innerHeight - height - 4))}px`;
}
function hideTip() { byId('tip').hidden = true; }

function swatch(run) {
  const canvas = element('canvas', {className: 'swatch', width: 42, height: 21});
  canvas.setAttribute('aria-hidden', 'true');
  const context = canvas.getContext('2d');
  context.strokeStyle = seriesColour(state.palette, run);
  context.lineWidth = 4;
  context.setLineDash(isComparison() ? kDashes[run % kDashes.length].map((length) => 2 * length) : []);
  context.beginPath();
  context.moveTo(0, 10);
  context.lineTo(42, 10);
  context.stroke();
  return canvas;
}

function tipLines(readings) {
  return readings.map((reading) => {
    const row = element('div', {className: 'row'}, swatch(reading.run));
    if (isComparison()) row.append(state.runs[reading.run].name);
    row.append(element('span', {className: 'where'}, describePlace(reading)),
               element('b', {}, describeValue(reading)));
    return row;
  });
}
function describePlace(reading) {
  const time = Number.isFinite(reading.time) ? `, ${formatDuration(reading.time)}` : '';
  return `step ${reading.step}${time}`;
}
function describeValue(reading) {
  const raw = formatNumber(reading.value);
  return state.view.smoothing > 0 ? `${formatNumber(reading.smoothed)} (${raw})` : raw;
}
