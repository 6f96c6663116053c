// What the pages are built from: words for numbers, colours, chart parts, tables. embed.cmake puts
// it before page.js and history.js.
'use strict';
const kit = (() => {
  // Colour-blind safe; the values are in page.css.
  const COLOURS = ['learned', 'uniform', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'eighth'];
  const SHAPES = ['circle', 'rect', 'triangle', 'rectRot', 'crossRot'];

  // --- words and numbers ---
  const byId = (id) => document.getElementById(id);
  const number = (v) => (typeof v === 'number' && Number.isFinite(v) ? v : null);
  const list = (v) => (Array.isArray(v) ? v : []);
  const record = (v) => (v !== null && typeof v === 'object' ? v : {});
  const word = (v) => (v === null || v === undefined ? '' : String(v));
  const format = (v, digits) => (number(v) === null ? '–' : v.toFixed(digits));
  const percent = (v) => (number(v) === null ? '–' : `${(v * 100).toFixed(1)} %`);
  const count = (v) => (number(v) === null ? '–' : v.toLocaleString('en-US'));
  const plural = (n, one) => `${count(n)} ${one}${n === 1 ? '' : 's'}`;
  const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

  function duration(seconds) {
    if (number(seconds) === null || seconds < 0) return '–';
    if (seconds < 100) return `${Math.floor(seconds)} s`;
    return seconds < 6000 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  function magnitude(v) {
    if (number(v) === null) return '–';
    if (v >= 1e9) return `${(v / 1e9).toFixed(1)} B`;
    return v >= 1e6 ? `${(v / 1e6).toFixed(1)} M` : count(v);
  }

  // Only touches the document when the words change: selections and screen readers stay calm.
  function say(element, words) {
    if (element.textContent !== words) element.textContent = words;
  }

  // --- colours, from the style sheet ---
  const theme = {};
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['ink', 'quiet', 'grid', 'card', 'edge', 'dense', ...COLOURS]) {
      theme[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }
  const paint = (name) => () => theme[name];
  const faint = (name, alpha) => () => theme[name] + alpha;  // colours are #rrggbb

  // --- drawing ---
  // Bands and whiskers of points that have {low, high}, behind the lines; a set without a line has
  // whiskers alone.
  const intervals = {
    id: 'intervals',
    beforeDatasetsDraw(chart) {
      const {ctx, scales} = chart;
      chart.data.datasets.forEach((set, index) => {
        if (!set.colour || !set.data.length || set.data[0].low === undefined) return;
        const marks = chart.getDatasetMeta(index).data;
        const edges = set.data.map((p, i) => ({x: marks[i].x, low: scales.y.getPixelForValue(p.low),
          high: scales.y.getPixelForValue(p.high)}));
        ctx.save();
        ctx.fillStyle = `${theme[set.colour]}1c`;
        ctx.beginPath();
        edges.forEach((e) => ctx.lineTo(e.x, e.high));
        [...edges].reverse().forEach((e) => ctx.lineTo(e.x, e.low));
        if (set.showLine !== false) ctx.fill();
        ctx.strokeStyle = `${theme[set.colour]}b0`;
        ctx.lineWidth = 1.25;
        ctx.beginPath();
        for (const e of edges) {
          for (const y of [e.low, e.high]) { ctx.moveTo(e.x - 4, y); ctx.lineTo(e.x + 4, y); }
          ctx.moveTo(e.x, e.low);
          ctx.lineTo(e.x, e.high);
        }
        ctx.stroke();
        ctx.restore();
      });
    },
  };

  // Dashed levels over the whole width: chart.options.plugins.levels.lines = [{value, colour}].
  const levels = {
    id: 'levels',
    defaults: {lines: []},
    afterDatasetsDraw(chart) {
      const {ctx, chartArea, scales} = chart;
      for (const {value, colour} of chart.config.options.plugins.levels.lines) {
        const y = scales.y.getPixelForValue(value);
        ctx.save();
        ctx.strokeStyle = theme[colour];
        ctx.lineWidth = 1.75;
        ctx.setLineDash([6, 4]);
        ctx.beginPath();
        ctx.moveTo(chartArea.left, y);
        ctx.lineTo(chartArea.right, y);
        ctx.stroke();
        ctx.restore();
      }
    },
  };

  const axis = (title, more) => ({
    title: {display: true, text: title, color: paint('quiet'), font: {size: 12}},
    grid: {color: paint('grid'), borderColor: paint('edge'), drawTicks: false},
    ...more,
    ticks: {color: paint('quiet'), padding: 6, maxRotation: 0, ...more.ticks},
  });
  const shareTicks = {callback: (v) => `${Math.round(v * 100)} %`, maxTicksLimit: 11};
  function makeChart(canvas, type, scales, tooltip) {
    const options = {
      responsive: true, maintainAspectRatio: false, animation: false,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales,
      plugins: {
        legend: {display: false},
        levels: {lines: []},
        tooltip: {backgroundColor: paint('card'), titleColor: paint('ink'), bodyColor: paint('ink'),
          borderColor: paint('edge'), borderWidth: 1, padding: 10, boxPadding: 5,
          usePointStyle: true, callbacks: tooltip},
      },
    };
    return new Chart(canvas, {type, data: {labels: [], datasets: []}, options,
      plugins: [intervals, levels]});
  }

  // Puts `sets` into the chart; a set with a label that is there already keeps its object.
  function fill(chart, sets, alt, labels) {
    const old = new Map(chart.data.datasets.map((set) => [set.label, set]));
    chart.data.datasets = sets.map((set) => Object.assign(old.get(set.label) || {}, set));
    if (labels) chart.data.labels = labels;
    chart.update('none');
    chart.canvas.setAttribute('aria-label', alt);
  }

  const lineSet = (label, colour, data, more) => ({label, data, borderColor: paint(colour),
    backgroundColor: paint(colour), borderWidth: 2, pointRadius: 0, pointHoverRadius: 4, ...more});
  const markedSet = (line, data) => lineSet(line.name, line.colour, data, {colour: line.colour,
    pointStyle: line.shape, pointRadius: 4.5, pointHoverRadius: 6, borderWidth: 2.25});

  // Entries: {name, colour, look: line | dashed | dots | bar, shape}. Drawn once for each theme.
  function drawLegend(card, entries) {
    const ul = card.querySelector('.legend');
    const state = JSON.stringify([entries, theme.ink, devicePixelRatio]);
    if (ul.dataset.state === state) return;
    ul.dataset.state = state;
    ul.replaceChildren(...entries.map(({name, colour, look, shape}) => {
      const swatch = document.createElement('canvas');
      const ratio = devicePixelRatio || 1;
      swatch.width = 26 * ratio;
      swatch.height = 14 * ratio;
      swatch.setAttribute('aria-hidden', 'true');
      const ctx = swatch.getContext('2d');
      ctx.scale(ratio, ratio);
      ctx.strokeStyle = ctx.fillStyle = theme[colour];
      ctx.lineWidth = 2;
      if (look === 'bar') ctx.fillRect(7, 2, 12, 11);
      if (look === 'dashed') ctx.setLineDash([6, 4]);
      if (look === 'line' || look === 'dashed') {
        ctx.beginPath();
        ctx.moveTo(0, 7);
        ctx.lineTo(26, 7);
        ctx.stroke();
      }
      const point = {pointStyle: shape, radius: 4.5, borderWidth: 1};
      if (shape) Chart.helpers.drawPoint(ctx, point, 13, 7);
      if (look === 'dots') {
        ctx.globalAlpha = 0.5;
        for (const [x, y] of [[5, 9], [13, 5], [21, 8]]) {
          Chart.helpers.drawPoint(ctx, {pointStyle: 'circle', radius: 2, borderWidth: 0}, x, y);
        }
      }
      const li = document.createElement('li');
      li.append(swatch, name);
      return li;
    }));
  }

  // Shows the plot, or else the sentence that says what is waited for.
  function plotOr(card, missing) {
    card.querySelectorAll('.plot, .legend').forEach((e) => { e.hidden = Boolean(missing); });
    const empty = card.querySelector('.empty');
    empty.hidden = !missing;
    say(empty, missing || '');
    return !missing;
  }

  // --- tables ---
  // Cells are {text, kind}. Rows that are there are filled again.
  function syncRows(body, rows) {
    while (body.rows.length > rows.length) body.deleteRow(-1);
    rows.forEach((cells, i) => {
      const row = body.rows[i] || body.insertRow();
      cells.forEach(({text, kind}, j) => {
        const cell = row.cells[j] || row.insertCell();
        cell.className = kind || '';
        say(cell, text);
      });
    });
  }

  const start = () => {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.font.size = 12;
    readTheme();
  };

  // --- of what moment a view is, and who is there ---
  const NO_NEWS_MS = 10000;  // a view that is older is said to be
  // now_unix_ms is when it was made; an aggregator adds when it was asked for, by the same clock.
  const nowOf = (view) => number(view.served_unix_ms) || number(view.now_unix_ms);
  const timeOf = (unixMs) => new Date(unixMs).toLocaleTimeString('en-GB');
  const isAlive = (worker) => worker.state !== 'failed';

  // Why what is shown is not of this moment; empty if it is.
  function staleness(view) {
    const age = nowOf(view) - number(view.now_unix_ms);
    const why = word(view.away);
    if (age <= NO_NEWS_MS) return '';
    return `no news of the run for ${duration(age / 1000)}${why ? `: ${why}` : ''}`;
  }

  return {COLOURS, SHAPES, byId, number, list, record, word, format, percent, count, plural, mean,
    duration, magnitude, say, readTheme, paint, faint, axis, shareTicks, makeChart,
    fill, lineSet, markedSet, drawLegend, plotOr, syncRows, nowOf, timeOf, isAlive, staleness,
    start};
})();
