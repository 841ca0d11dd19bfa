// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them, and the ticks of an axis.
'use strict';

function formatNumber(value) {
  if (typeof value !== 'number') return String(value);  // "nan", "inf"
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, 'e').replace('e+', 'e');
  return String(Number(value.toPrecision(5)));
}

// For a tick: only as many digits as the distance to the next one needs.
function formatTick(value, distance) {
  const size = Math.abs(value);
  if (size >= 1e6 || (size !== 0 && size < 1e-3)) return String(Number(value.toPrecision(6))).replace('e+', 'e');
  return value.toFixed(Math.min(8, Math.max(0, -Math.floor(Math.log10(distance) + 1e-9))));
}

function formatCount(value) {
  for (const [size, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) {
    const isShort = value % (size / 10) === 0;
    if (Math.abs(value) >= size && (isShort || Math.abs(value) >= 1e6)) {
      return Number((value / size).toPrecision(4)) + unit;
    }
  }
  return value.toLocaleString('en');
}

function formatDuration(seconds) {
  if (seconds > 0 && seconds < 1e-3) return Number((seconds * 1e6).toPrecision(3)) + ' \u00B5s';
  if (seconds > 0 && seconds < 1) return Number((seconds * 1e3).toPrecision(3)) + ' ms';
  if (seconds < 60) return Number(seconds.toPrecision(3)) + ' s';
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function niceTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; ++i) ticks.push(i * step);
  return {ticks, step};
}

function timeTicks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const steps = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
  const step = rough < 30 ? 0 : steps.find((candidate) => candidate >= rough) || 0;
  if (step === 0) return niceTicks(low, high, count);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; ++i) ticks.push(i * step);
  return {ticks, step};
}

function formatTimeTick(seconds, step) {
  if (seconds === 0) return '0';
  if (step >= 3600) return formatTick(seconds / 3600, step / 3600) + ' h';
  if (step >= 60) {
    const hours = Math.floor(seconds / 3600);
    const minutes = Math.round(seconds / 60) % 60;
    return hours > 0 ? `${hours}:${String(minutes).padStart(2, '0')} h` : `${minutes} min`;
  }
  return formatTick(seconds, step) + ' s';
}

// Of a range in powers of ten: each power, or 1, 2 and 5 of each when there are few.
function logTicks(low, high, count) {
  const first = Math.floor(low);
  const powers = Math.floor(high) - first + 1;
  const every = Math.max(1, Math.ceil(powers / count));
  const factors = powers <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let power = first; power <= high; power += every) {
    for (const factor of factors) {
      const at = power + Math.log10(factor);
      if (at >= low - 1e-9 && at <= high + 1e-9) ticks.push(at);
    }
  }
  return ticks.length >= 2 ? ticks : [low, high];
}
