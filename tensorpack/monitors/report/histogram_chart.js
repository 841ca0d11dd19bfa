// SPDX-License-Identifier: Apache-2.0
// Histograms over time: a column for each, the stronger its colour the more values.
'use strict';

class HistogramChart {
  constructor(host, onHover) {
    this.host = host;
    this.canvas = document.createElement('canvas');
    host.append(this.canvas);
    this.items = [];
    host.addEventListener('pointermove', (event) => {
      if (!this.plot || this.items.length === 0) return;
      const x = event.clientX - host.getBoundingClientRect().left;
      const share = (x - this.plot.left) / (this.plot.right - this.plot.left);
      const i = Math.min(Math.max(Math.floor(share * this.items.length), 0), this.items.length - 1);
      onHover(this.items[i], event);
    });
    host.addEventListener('pointerleave', () => onHover(null));
  }

  measure() { this.size = sizeOf(this.host); }

  setItems(items) { this.items = items; }

  draw(palette) {
    const surface = prepareCanvas(this.canvas, this.size);
    if (!surface || this.items.length === 0) return;
    const {context, width, height} = surface;
    let low = Math.min(...this.items.map((item) => item.low));
    let high = Math.max(...this.items.map((item) => item.high));
    if (low === high) { low -= 0.5; high += 0.5; }
    context.font = palette.font;
    const {ticks, step} = niceTicks(low, high, Math.max(2, Math.floor(height / 34)));
    const labels = ticks.map((at) => [at, formatTick(at, step)]);
    const left = Math.max(...labels.map(([, text]) => context.measureText(text).width)) + 12;
    this.plot = {left, top: 6, right: width - 10, bottom: height - 22};
    const {top, right, bottom} = this.plot;
    const toY = (value) => bottom - (value - low) / (high - low) * (bottom - top);
    const column = (right - left) / this.items.length;
    // On whole pixels: where translucent neighbours overlap, there would be lines.
    this.items.forEach((item, i) => {
      const most = Math.max(...item.counts);
      const begin = Math.round(left + column * i);
      const end = Math.round(left + column * (i + 1));
      const bin = (item.high - item.low) / item.counts.length;
      item.counts.forEach((count, k) => {
        if (count === 0) return;
        context.fillStyle = `rgba(${palette.heat}, ${(0.08 + 0.92 * Math.sqrt(count / most)).toFixed(3)})`;
        const upper = Math.round(toY(item.low + bin * (k + 1)));
        const lower = Math.round(toY(item.low + bin * k));
        context.fillRect(begin, upper, Math.max(1, end - begin), Math.max(1, lower - upper));
      });
    });
    this.drawPercentiles(context, palette, left, column, toY);
    this.drawAxes(context, palette, labels, toY, column);
  }

  drawPercentiles(context, palette, left, column, toY) {
    context.strokeStyle = palette.series[1];
    for (const share of [0.05, 0.5, 0.95]) {
      context.lineWidth = share === 0.5 ? 1.5 : 0.75;
      context.beginPath();
      this.items.forEach((item, i) => {
        const x = left + column * (i + 0.5);
        context.lineTo(x, toY(percentile(item, share)));
      });
      context.stroke();
    }
  }

  drawAxes(context, palette, labels, toY, column) {
    const {left, right, bottom} = this.plot;
    context.fillStyle = palette.soft;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const [at, text] of labels) context.fillText(text, left - 7, toY(at));
    context.textBaseline = 'top';
    const every = Math.ceil(this.items.length / Math.max(1, Math.floor((right - left) / 70)));
    this.items.forEach((item, i) => {
      if (i % every !== 0) return;
      const text = formatCount(item.step);
      const half = context.measureText(text).width / 2;
      const middle = left + column * (i + 0.5);
      context.textAlign = 'center';
      context.fillText(text, Math.max(left + half, Math.min(middle, right - half)), bottom + 7);
    });
  }
}

// The value below which a share of a histogram's values lies.
function percentile(item, share) {
  const total = item.counts.reduce((sum, count) => sum + count, 0);
  const bin = (item.high - item.low) / item.counts.length;
  let seen = 0;
  for (let k = 0; k < item.counts.length; ++k) {
    const count = item.counts[k];
    if (count > 0 && seen + count >= share * total) return item.low + bin * (k + (share * total - seen) / count);
    seen += count;
  }
  return item.high;
}
