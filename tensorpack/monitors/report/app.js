// SPDX-License-Identifier: Apache-2.0
// The page: shows the run whose data is in it, or, served by `tp watch`, those of the server.
'use strict';

const kPollMilliseconds = 2000;

// ---- The head of the page.

function updateHead() {
  const runs = state.runs.filter((run) => run.data);
  const title = runs.length === 0 ? 'Training report' : isComparison() ? `${state.runs.length} runs` : runs[0].name;
  byId('title').textContent = title;
  document.title = title;
  const status = isComparison() ? '' : runs.length === 0 ? 'There is no report yet.' : describeProgress(runs[0].data.progress);
  if (byId('status').textContent !== status) byId('status').textContent = status;
  updateSections();
}

function describeProgress(progress) {
  const epoch = progress.max_epoch < 9999999 ? `epoch ${progress.epoch} of ${progress.max_epoch}` : `epoch ${progress.epoch}`;
  const written = new Date(progress.written * 1000).toLocaleString();
  const end = {running: 'running, as of', finished: 'finished', stopped: 'ended early'}[progress.state];
  return `${epoch} \u00B7 step ${progress.step.toLocaleString('en')} \u00B7 ${end} ${written}`;
}

function updateSections() {
  const sections = [...document.querySelectorAll('main > section')].filter((section) => !section.hidden);
  const key = sections.map((section) => section.id).join();
  if (byId('sections').dataset.key === key) return;
  byId('sections').dataset.key = key;
  byId('sections').replaceChildren(...sections.map((section) => element(
      'a', {href: `#${section.id}`}, section.querySelector('h2').textContent)));
  markSection();
}

// Which section is being read: the last that begins near the top.
function markSection() {
  const links = [...byId('sections').children];
  let current = links[0];
  for (const link of scrollY < 20 ? [] : links) {
    if (byId(link.hash.slice(1)).getBoundingClientRect().top < 160) current = link;
  }
  for (const link of links) {
    if (link === current) link.setAttribute('aria-current', 'true'); else link.removeAttribute('aria-current');
  }
}

// ---- Light and dark: as the system has it, until the user says otherwise.

const darkSystem = matchMedia('(prefers-color-scheme: dark)');
let theme = null;

function applyTheme() {
  const isDark = theme === null ? darkSystem.matches : theme === 'dark';
  document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
  byId('theme').textContent = isDark ? 'Light' : 'Dark';
  byId('theme').setAttribute('aria-label', isDark ? 'Switch to light colours' : 'Switch to dark colours');
  state.palette = readPalette();
  if (state.runs.length > 0) updateRuns();
  redraw();
}

function listenToTheme() {
  try { theme = localStorage.getItem('tensorpack-theme'); } catch (error) { theme = null; }
  byId('theme').addEventListener('click', () => {
    theme = document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark';
    try { localStorage.setItem('tensorpack-theme', theme); } catch (error) { /* for this page only */ }
    applyTheme();
  });
  darkSystem.addEventListener('change', applyTheme);
}

// ---- From data to page.

function update() {
  updateRuns();
  updateScalars();
  updateImages();
  updateHistograms();
  updateTexts();
  updateGraph();
  updateParameters();
  updateStages();
  updateFacts('configuration', (data) => [...data.flags.map(([name, value]) => [name, value || 'set']), ...data.configuration]);
  updateFacts('environment', (data) => data.environment);
  updateLog();
  updateHead();
}

// Columns come as differences, which are shorter to write.
function unpack(data) {
  const sums = (deltas) => { let sum = 0; return deltas.map((delta) => sum += delta); };
  for (const series of Object.values(data.scalars)) {
    series.steps = sums(series.steps);
    series.times = sums(series.times).map((milliseconds) => milliseconds / 1000);
  }
  return data;
}

async function getJson(path) {
  const answer = await fetch(path, {cache: 'no-store'});
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// Asks the server which reports are newer than those shown. The view stays as it is.
async function poll() {
  try {
    const list = await getJson('runs');
    let isNew = list.length !== state.runs.length;
    for (const [index, {name, version}] of list.entries()) {
      const run = state.runs[index] || (state.runs[index] = {name, data: null, version: null, shown: true});
      if (version === run.version) continue;
      run.data = version === null ? null : unpack(await getJson(`runs/${index}`));
      run.version = version;
      isNew = true;
    }
    if (isNew) update(); else updateHead();
  } catch (error) {
    byId('status').textContent = 'The server does not answer. What is shown may be old.';
  }
  setTimeout(poll, kPollMilliseconds);
}

function start() {
  listenToTheme();
  listenToControls();
  addEventListener('scroll', markSection, {passive: true});
  recall();
  applyTheme();
  showControls();
  const text = byId('data').textContent.trim();
  if (text !== '') {
    const data = unpack(JSON.parse(text));
    state.runs = [{name: data.name, data, version: 0, shown: true}];
    update();
  } else {
    update();
    poll();
  }
}

start();
