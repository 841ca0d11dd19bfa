// SPDX-License-Identifier: Apache-2.0
// What all charts need: colours, which come from the style sheet, a canvas, and small sums.
'use strict';

function readPalette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  return {
    series: get('--series').split(',').map((colour) => colour.trim()),
    grid: get('--grid'),
    soft: get('--soft'),
    warn: get('--warn'),
    heat: get('--heat'),
    font: '11px ' + getComputedStyle(document.body).fontFamily,
  };
}

const kDashes = [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 4], [1, 3], [10, 2, 2, 2, 2, 2]];
const seriesColour = (palette, run) => palette.series[run % palette.series.length];

// The size of an element. All are asked before the first is drawn: a question after a change has
// the browser lay out the page again.
const sizeOf = (host) => ({width: host.clientWidth, height: host.clientHeight});

// The canvas in device pixels, cleared; null while there is no room.
function prepareCanvas(canvas, {width, height}) {
  if (width === 0 || height === 0) return null;
  const scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return {context, width, height};
}

// The index of the number nearest to x in ascending numbers.
function nearestIndex(xs, x) {
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[high] - x) < Math.abs(xs[low] - x) ? high : low;
}

// An exponential moving average whose first values count in full. Gaps stay gaps.
function smooth(values, weight) {
  if (weight === 0) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (typeof value !== 'number') return value;
    sum = sum * weight + value * (1 - weight);
    total = total * weight + (1 - weight);
    return sum / total;
  });
}
