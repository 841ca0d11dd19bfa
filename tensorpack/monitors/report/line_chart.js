// SPDX-License-Identifier: Apache-2.0
// Scalars over time. Knows nothing of the page around it.
'use strict';

// How all charts are drawn: the x axis, the scale of y, and the part of x that is shown.
const kDefaultView = {axis: 'step', log: false, smoothing: 0, zoom: null};

class LineChart {
  // `events` are told what the user does: onCursor(chart or null, x, event), onZoom(range or null),
  // and onRead(chart, readings) for what is to be read aloud.
  constructor(host, name, events) {
    this.host = host;
    this.name = name;
    this.events = events;
    this.series = [];
    this.view = kDefaultView;
    this.canvas = document.createElement('canvas');
    this.cursor = this.makeMark('cursor');
    this.selection = this.makeMark('selection');
    this.dots = [];
    this.at = null;  // the x of the cursor
    host.append(this.canvas, this.cursor, this.selection);
    this.listen();
  }

  makeMark(kind) {
    const mark = document.createElement('div');
    mark.className = kind;
    mark.hidden = true;
    return mark;
  }

  measure() { this.size = sizeOf(this.host); }

  // One {run, steps, times, values} for each run; what is not finite is a text among the values.
  setSeries(series) {
    this.series = series;
    this.smoothSeries();
  }

  smoothSeries() {
    this.smoothed = this.series.map((series) => smooth(series.values, this.view.smoothing));
  }

  xsOf(series) { return this.view.axis === 'time' ? series.times : series.steps; }

  // All of x there is.
  extent() {
    let low = Infinity;
    let high = -Infinity;
    for (const series of this.series) {
      const xs = this.xsOf(series);
      if (xs.length === 0) continue;
      low = Math.min(low, xs[0]);
      high = Math.max(high, xs[xs.length - 1]);
    }
    if (low > high) return [0, 1];
    return low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  draw(palette, view) {
    const isSmoothedAnew = view.smoothing !== this.view.smoothing;
    this.view = view;
    if (isSmoothedAnew) this.smoothSeries();
    this.palette = palette;
    const surface = prepareCanvas(this.canvas, this.size);
    if (!surface) return;
    this.x = view.zoom || this.extent();
    this.y = this.rangeOfY();
    this.layOut(surface);
    this.drawGrid(surface);
    this.drawLines(surface);
    this.showCursor(this.at);
  }

  scaled(value) {
    if (typeof value !== 'number') return NaN;
    return this.view.log ? (value > 0 ? Math.log10(value) : NaN) : value;
  }

  rangeOfY() {
    let low = Infinity;
    let high = -Infinity;
    for (const series of this.series) {
      const xs = this.xsOf(series);
      for (let i = 0; i < xs.length; ++i) {
        if (xs[i] < this.x[0] || xs[i] > this.x[1]) continue;
        const y = this.scaled(series.values[i]);
        if (y < low) low = y;
        if (y > high) high = y;
      }
    }
    if (low > high) return [0, 1];
    const room = low === high ? (Math.abs(low) || 1) * 0.1 : (high - low) * 0.06;
    return [low - room, high + room];
  }

  layOut({context, width, height}) {
    context.font = this.palette.font;
    const [low, high] = this.y;
    const count = Math.max(2, Math.floor(height / 34));
    if (this.view.log) {
      this.yTicks = logTicks(low, high, count).map((at) => [at, formatNumber(Number((10 ** at).toPrecision(2)))]);
    } else {
      const {ticks, step} = niceTicks(low, high, count);
      this.yTicks = ticks.map((at) => [at, formatTick(at, step)]);
    }
    const label = Math.max(0, ...this.yTicks.map(([, text]) => context.measureText(text).width));
    this.plot = {left: label + 12, top: 6, right: width - 10, bottom: height - 22};
    const room = Math.max(1, Math.floor((this.plot.right - this.plot.left) / 60));
    if (this.view.axis === 'time') {
      const {ticks, step} = timeTicks(...this.x, room);
      this.xTicks = ticks.map((at) => [at, formatTimeTick(at, step)]);
    } else {
      this.xTicks = niceTicks(...this.x, room).ticks.filter(Number.isInteger).map((at) => [at, formatCount(at)]);
    }
  }

  toPixelX(x) {
    const {left, right} = this.plot;
    return left + (x - this.x[0]) / (this.x[1] - this.x[0]) * (right - left);
  }

  toPixelY(y) {
    const {top, bottom} = this.plot;
    return bottom - (y - this.y[0]) / (this.y[1] - this.y[0]) * (bottom - top);
  }

  fromPixelX(pixel) {
    const {left, right} = this.plot;
    return this.x[0] + (pixel - left) / (right - left) * (this.x[1] - this.x[0]);
  }

  drawGrid({context, width}) {
    const {left, top, right, bottom} = this.plot;
    context.lineWidth = 1;
    context.strokeStyle = this.palette.grid;
    context.fillStyle = this.palette.soft;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.beginPath();
    for (const [at, text] of this.yTicks) {
      const y = Math.round(this.toPixelY(at)) + 0.5;
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.fillText(text, left - 7, y);
    }
    context.stroke();
    context.textBaseline = 'top';
    context.textAlign = 'center';
    for (const [at, text] of this.xTicks) {
      const half = context.measureText(text).width / 2;
      const x = Math.min(Math.max(this.toPixelX(at), half + 1), width - half - 1);
      context.fillText(text, x, bottom + 7);
    }
  }

  drawLines({context}) {
    const {left, top, right, bottom} = this.plot;
    context.save();
    context.beginPath();
    context.rect(left - 4, top - 4, right - left + 8, bottom - top + 8);
    context.clip();
    context.lineJoin = 'round';
    this.series.forEach((series, i) => {
      context.strokeStyle = context.fillStyle = seriesColour(this.palette, series.run);
      context.setLineDash([]);
      if (this.view.smoothing > 0) {
        context.globalAlpha = 0.28;
        context.lineWidth = 1;
        this.drawLine(context, this.xsOf(series), series.values);
      }
      context.globalAlpha = 1;
      context.lineWidth = 1.6;
      const shown = this.xsOf(series).filter((x) => x >= this.x[0] && x <= this.x[1]);
      const isSparse = shown.length < 300;  // else dashes would be lost in the noise
      context.setLineDash(this.series.length > 1 && isSparse ? kDashes[series.run % kDashes.length] : []);
      this.drawLine(context, this.xsOf(series), this.smoothed[i]);
      this.drawMissing(context, this.xsOf(series), series.values);
    });
    context.restore();
  }

  // Where many points share a column of pixels, its lowest and highest stand for all of them.
  drawLine(context, xs, values) {
    context.beginPath();
    let drawn = 0;
    let isDown = false;
    let column = NaN;
    let low = 0;
    let high = 0;
    let last = 0;
    const endColumn = () => {
      if (drawn > 0 && low !== high) {
        context.lineTo(column, low);
        context.lineTo(column, high);
        context.lineTo(column, last);
      }
    };
    for (let i = 0; i < xs.length; ++i) {
      // One point beyond each edge leads the line out of the picture.
      if (i + 1 < xs.length && xs[i + 1] < this.x[0]) continue;
      if (i > 0 && xs[i - 1] > this.x[1]) break;
      const y = this.scaled(values[i]);
      if (Number.isNaN(y)) {
        endColumn();
        isDown = false;
        column = NaN;
        continue;
      }
      const pixelX = this.toPixelX(xs[i]);
      const pixelY = this.toPixelY(y);
      if (Math.abs(pixelX - column) < 0.5) {
        low = Math.min(low, pixelY);
        high = Math.max(high, pixelY);
        last = pixelY;
        continue;
      }
      endColumn();
      if (isDown) context.lineTo(pixelX, pixelY); else context.moveTo(pixelX, pixelY);
      isDown = true;
      column = pixelX;
      low = high = last = pixelY;
      ++drawn;
    }
    endColumn();
    context.stroke();
    if (xs.length <= 40) this.drawPoints(context, xs, values);
  }

  drawPoints(context, xs, values) {
    for (let i = 0; i < xs.length; ++i) {
      const y = this.scaled(values[i]);
      if (Number.isNaN(y)) continue;
      context.beginPath();
      context.arc(this.toPixelX(xs[i]), this.toPixelY(y), 2, 0, 2 * Math.PI);
      context.fill();
    }
  }

  // What is not a number must not go unseen: a mark at the upper edge.
  drawMissing(context, xs, values) {
    context.fillStyle = this.palette.warn;
    for (let i = 0; i < xs.length; ++i) {
      if (typeof values[i] === 'number') continue;
      const x = this.toPixelX(xs[i]);
      context.beginPath();
      context.moveTo(x - 4, this.plot.top - 2);
      context.lineTo(x + 4, this.plot.top - 2);
      context.lineTo(x, this.plot.top + 5);
      context.fill();
    }
  }

  // ---- The cursor.

  // What each run has nearest to x, as far as it is in the picture.
  readAt(x) {
    const readings = [];
    this.series.forEach((series, i) => {
      const xs = this.xsOf(series);
      if (xs.length === 0) return;
      const k = nearestIndex(xs, x);
      if (xs[k] < this.x[0] || xs[k] > this.x[1]) return;
      readings.push({run: series.run, step: series.steps[k], time: series.times[k], x: xs[k],
                     value: series.values[k], smoothed: this.smoothed[i][k]});
    });
    return readings;
  }

  showCursor(x) {
    if (x === null && this.at === null) return [];
    this.at = x;
    for (const dot of this.dots) dot.remove();
    this.dots = [];
    this.cursor.hidden = true;
    if (x === null || !this.plot) return [];
    const readings = this.readAt(x);
    if (readings.length === 0) return [];
    const nearest = readings.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
    const {top, bottom} = this.plot;
    Object.assign(this.cursor.style, {left: `${this.toPixelX(nearest.x)}px`, top: `${top}px`, height: `${bottom - top}px`});
    this.cursor.hidden = false;
    for (const reading of readings) {
      const y = this.scaled(reading.smoothed);
      if (Number.isNaN(y)) continue;
      const dot = this.makeMark('dot');
      Object.assign(dot.style, {left: `${this.toPixelX(reading.x)}px`, top: `${this.toPixelY(y)}px`,
                                background: seriesColour(this.palette, reading.run)});
      dot.hidden = false;
      this.host.append(dot);
      this.dots.push(dot);
    }
    return readings;
  }

  // ---- Pointer and keyboard.

  listen() {
    const pixel = (event) => {
      const box = this.host.getBoundingClientRect();
      return Math.min(Math.max(event.clientX - box.left, this.plot.left), this.plot.right);
    };
    let start = null;
    this.host.addEventListener('pointerdown', (event) => {
      if (event.button !== 0 || !this.plot) return;
      start = pixel(event);
      this.host.setPointerCapture(event.pointerId);
    });
    this.host.addEventListener('pointermove', (event) => {
      if (!this.plot) return;
      const at = pixel(event);
      if (start !== null) this.showSelection(start, at);
      this.events.onCursor(this, this.fromPixelX(at), event);
    });
    this.host.addEventListener('pointerup', (event) => {
      if (start === null) return;
      const [from, to] = [start, pixel(event)].sort((a, b) => a - b);
      start = null;
      this.selection.hidden = true;
      if (to - from > 6) this.events.onZoom([this.fromPixelX(from), this.fromPixelX(to)]);
    });
    this.host.addEventListener('pointercancel', () => { start = null; this.selection.hidden = true; });
    this.host.addEventListener('pointerleave', () => this.events.onCursor(null, null));
    this.host.addEventListener('dblclick', () => this.events.onZoom(null));
    this.host.addEventListener('keydown', (event) => this.onKey(event));
    this.host.addEventListener('blur', () => this.events.onCursor(null, null));
  }

  showSelection(from, to) {
    const {top, bottom} = this.plot;
    Object.assign(this.selection.style, {left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px`,
                                         top: `${top}px`, height: `${bottom - top}px`});
    this.selection.hidden = false;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.plot || this.series.length === 0) return;
    const width = this.x[1] - this.x[0];
    const middle = this.at === null ? (this.x[0] + this.x[1]) / 2 : this.at;
    const zoomBy = (factor) => this.events.onZoom(this.inside(
        [middle - (middle - this.x[0]) * factor, middle + (this.x[1] - middle) * factor]));
    const pan = (share) => this.events.onZoom(this.inside([this.x[0] + width * share, this.x[1] + width * share]));
    const keys = {
      ArrowLeft: () => event.shiftKey ? pan(-0.25) : this.moveCursor(-1),
      ArrowRight: () => event.shiftKey ? pan(0.25) : this.moveCursor(1),
      Home: () => this.moveCursor(-Infinity),
      End: () => this.moveCursor(Infinity),
      '+': () => zoomBy(0.5),
      '=': () => zoomBy(0.5),
      '-': () => zoomBy(2),
      Escape: () => this.events.onZoom(null),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  // A range moved to where there is something to see; null for all there is.
  inside([from, to]) {
    const [low, high] = this.extent();
    if (to - from >= high - low) return null;
    const shift = Math.max(low - from, Math.min(0, high - to));
    return [from + shift, to + shift];
  }

  // Along all points of all runs that are in the picture.
  moveCursor(by) {
    const all = new Set();
    for (const series of this.series) {
      for (const x of this.xsOf(series)) if (x >= this.x[0] && x <= this.x[1]) all.add(x);
    }
    const xs = [...all].sort((a, b) => a - b);
    if (xs.length === 0) return;
    const here = this.at === null ? (by > 0 ? -1 : xs.length) : nearestIndex(xs, this.at);
    const next = Math.min(Math.max(here + by, 0), xs.length - 1);
    this.events.onCursor(this, xs[next]);
    this.events.onRead(this, this.readAt(xs[next]));
  }
}
