// The page of one run: reads the run view (one JSON document) and draws it.
//
// Live it asks for api/run again and again; in a report the view is part of the page. Charts and
// table rows are changed in place, so that hover and scroll survive a refresh. All words of the
// view go in as text: some come from workers, which nobody vouches for.
'use strict';
(() => {
  const REFRESH_MS = 2000;
  const GIVE_UP_MS = 8000;  // on one request
  const SMOOTH = 9;         // points in the moving average
  const NOW = 10;           // updates in "reward now"
  const REST_MS = 15000;    // of a run that has ended: it may go on
  const OLD_MS = 30000;     // a worker not seen for longer is marked
  const FAILURES = 3;       // shown, the newest
  const FINAL = ['finished', 'stopped', 'exported'];

  const {COLOURS, SHAPES, byId, number, list, record, word, format, percent, count, plural, mean,
    duration, magnitude, say, readTheme, paint, faint, axis, shareTicks, makeChart, fill,
    lineSet, markedSet, drawLegend, plotOr, syncRows, nowOf, timeOf, isAlive, staleness, start} = kit;

  const inlined = byId('run-view');

  const charts = {};
  window.allotCharts = charts;

  // --- what the evaluations say ---
  // Which of them are shown is in the view: lines that say the places of their rows.
  const rowAt = (view, place) => list(view.evaluations)[place];
  const linesOf = (view, lines) => list(lines).map((line) => ({method: word(line.method),
    schedule: word(line.schedule), cells: line.rows.map((place) => rowAt(view, place))}));

  const isDense = (line) => line.schedule === 'dense';
  const interval = (row) => {
    const [low, high] = list(row.ci95).map(number);
    return {low: low ?? row.accuracy, high: high ?? row.accuracy};
  };
  const range = (low, high) => `${(low * 100).toFixed(1)}–${(high * 100).toFixed(1)}`;
  // " (bootstrap, wilson)": how the intervals of these were computed.
  const kindsOf = (rows) => {
    const kinds = [...new Set(rows.map((row) => word(record(row).interval)).filter(Boolean))];
    return kinds.length ? ` (${kinds.sort().join(', ')})` : '';
  };
  // "+36.5 *", " (+31.9 to +41.0)": points by which a row is above another on the same questions;
  // * stands by Holm's rule.
  const points = (v) => `${v < 0 ? '−' : '+'}${(Math.abs(v) * 100).toFixed(1)}`;
  const above = (paired) => {
    const [low, high] = list(record(paired).ci95).map(number);
    if (low === null || low === undefined) return ['', ''];
    const told = low > 0 || high < 0;
    return [`${told ? '' : '~ '}${points(paired.mean)}${record(paired.holm).differs ? ' *' : ''}`,
      ` (${points(low)} to ${points(high)})`];
  };
  const plotPoint = (x, row) =>
    ({x, y: row.accuracy, ...interval(row), n: row.n, version: row.version});

  // How a line's prompts were read.
  const readingOf = (line) => word(record(line.cells[0]).prefill) || 'dense';
  let readBy = '';  // the one that the chart of accuracies shows; empty: all

  // What tells a line from the others: its method, its schedule, or both.
  function namer(lines) {
    const methods = new Set(lines.map((line) => line.method));
    const schedules = new Set(lines.map((line) => line.schedule));
    return (line) => (methods.size < 2 ? line.schedule :
      schedules.size < 2 || line.schedule === 'adaptive' ? line.method :
        `${line.schedule}, ${line.method}`);
  }

  // Names and colours. With one method learned and uniform always look the same, others follow.
  function styleLines(lines) {
    const methods = new Set(lines.map((line) => line.method));
    const named = namer(lines);
    let next = methods.size === 1 ? 2 : 0;
    return lines.map((line) => {
      const known = methods.size === 1 ? COLOURS.indexOf(line.schedule) : -1;
      const index = known >= 0 ? known : next++ % COLOURS.length;
      const name = named(line);
      return {...line, name, colour: COLOURS[index], shape: SHAPES[index % SHAPES.length]};
    });
  }

  // --- the cards ---
  const updateAxis = () =>
    axis('update', {type: 'linear', grid: {display: false, borderColor: paint('edge')},
      ticks: {precision: 0, maxTicksLimit: 8}});

  function smooth(values) {
    const half = (SMOOTH - 1) / 2;
    return values.map((_, i) => {
      const around = values.slice(Math.max(0, i - half), i + half + 1).filter((v) => v !== null);
      return around.length ? mean(around) : null;
    });
  }

  function waitingForUpdates(view) {
    if (list(view.history).length) return '';
    if (FINAL.includes(view.state)) return 'The run ended before its first update.';
    if (!list(view.workers).map(record).some(isAlive)) return 'Waiting for a worker to join.';
    return `Waiting for the first update: ${plural(number(view.episodes) || 0, 'episode')} so far.`;
  }

  const updateTitle = {title: (items) => `update ${items[0].parsed.x}`};
  const series = (history, key) => history.map((h) => ({x: h.version, y: number(h[key])}));
  const pointSize = (history) => (history.length > 600 ? 1.2 : history.length > 150 ? 2 : 2.6);

  function drawReward(view, history) {
    const card = byId('card-reward');
    if (!plotOr(card, waitingForUpdates(view))) return;
    charts.reward ??= makeChart(card.querySelector('.plot canvas'), 'line',
        {x: updateAxis(), y: axis('reward', {ticks: {maxTicksLimit: 7}})},
        {...updateTitle, label: (item) => ` ${item.dataset.label}: ${format(item.parsed.y, 3)}`});
    const smoothed = smooth(history.map((h) => number(h.mean_reward)));
    fill(charts.reward, [
      lineSet('smoothed', 'learned', history.map((h, i) => ({x: h.version, y: smoothed[i]})),
          {borderWidth: 2.5, order: 0}),
      lineSet('updates before', 'uniform', series(history, 'mean_baseline'),
          {borderColor: faint('uniform', '70'), borderWidth: 1.25, order: 2}),
      lineSet('reward', 'learned', series(history, 'mean_reward'),
          {showLine: false, pointRadius: pointSize(history), pointBorderWidth: 0,
            pointBackgroundColor: faint('learned', '80'), order: 1}),
    ], `Reward over ${plural(history.length, 'update')}; smoothed, it went from ` +
        `${format(smoothed[0], 3)} to ${format(smoothed[smoothed.length - 1], 3)}.`);
    drawLegend(card, [{name: 'one update', colour: 'learned', look: 'dots'},
      {name: 'smoothed', colour: 'learned', look: 'line'},
      {name: 'updates before', colour: 'uniform', look: 'line'}]);
  }

  // The y axis around all intervals, in whole steps.
  function fitShares(chart, values) {
    const y = chart.options.scales.y;
    const [low, high] = [Math.min(...values) - 0.005, Math.max(...values) + 0.005];
    const step = high - low > 0.3 ? 0.1 : high - low > 0.1 ? 0.05 : 0.02;
    const round = (v) => Math.round(v * 1000) / 1000;
    y.min = Math.max(0, round(Math.floor(low / step) * step));
    y.max = Math.min(1, round(Math.ceil(high / step) * step));
    y.ticks.stepSize = step;
  }
  const pointLabel = (item) => {
    const p = item.raw;
    return ` ${item.dataset.label}: ${percent(p.y)} (${range(p.low, p.high)}), ` +
        `n = ${count(p.n)}, version ${p.version}`;
  };

  // Offers the ways in which prompts were read, where there are several; returns the lines of the
  // one that is chosen, and dense's.
  function chosenLines(lines) {
    const ways = [...new Set(lines.map(readingOf))].sort();
    if (!ways.includes(readBy)) readBy = '';
    const select = byId('prefill');
    select.parentElement.hidden = ways.length < 2;
    if (select.dataset.ways !== JSON.stringify(ways)) {
      select.dataset.ways = JSON.stringify(ways);
      select.replaceChildren(new Option('any method', ''), ...ways.map((way) => new Option(way)));
    }
    select.value = readBy;
    return lines.filter((line) => !readBy || isDense(line) || readingOf(line) === readBy);
  }

  // With spec.policy.price bytes or time a total budget is a share of dense attention's.
  const isPriced = (view) => view.price === 'bytes' || view.price === 'time';
  const budgetOf = (view, budget) => count(budget) +
    (view.price === 'time' ? ' % of time' : isPriced(view) ? ' %' : '');
  // As core/spec/prices.h: what reads all rows.
  const ALL_ROWS = 1000000;
  const readsText = (v) => (v >= ALL_ROWS ? 'all' : format(v, 1).replace(/\.0$/, ''));

  function drawAccuracy(view, all) {
    const card = byId('card-accuracy');
    const lines = chosenLines(all);
    // A method that reads what it needs has no place on an axis of budgets.
    const curves = styleLines(lines.filter((line) => !isDense(line) &&
        line.cells.some((row) => row.total_budget > 0)))
        .map((line) => ({...line, cells: line.cells.filter((row) => row.total_budget > 0)}));
    const dense = (lines.find(isDense) || {cells: []}).cells[0];
    const budgets = [...new Set(curves.flatMap((line) =>
      line.cells.map((row) => row.total_budget)))].sort((a, b) => a - b);
    const ended = FINAL.includes(view.state);
    // Nothing was to be graded at a budget: the run compared outputs, or its methods take none.
    const compared = list(view.fidelity).length + list(view.variance).length > 0;
    card.hidden = ended && !budgets.length && (compared || lines.some((line) => !isDense(line)));
    byId('headline').closest('.tile').hidden = ended && compared && !lines.length;
    if (!plotOr(card, budgets.length ? '' : ended ? 'No sampled evaluation was finished.' :
      `Waiting for the first held-out evaluation${dense ? ` with a sample budget; read in full, ` +
        `the answers are ${percent(dense.accuracy)} right` : ''}.`)) return;
    charts.accuracy ??= makeChart(card.querySelector('.plot canvas'), 'line', {
      x: axis(isPriced(view) ? `total budget B, % of dense attention’s ${view.price} (log scale)` :
        'total budget B, reads per head and step (log scale)', {type: 'logarithmic',
        grid: {display: false, borderColor: paint('edge')}, ticks: {callback: (v) => String(v)}}),
      y: axis('accuracy', {ticks: shareTicks}),
    }, {title: (items) => `total budget ${budgetOf(view, items[0].parsed.x)}`, label: pointLabel});
    const {x} = charts.accuracy.options.scales;
    const pad = budgets.length > 1 ? (budgets[budgets.length - 1] / budgets[0]) ** 0.06 : 2;
    x.min = budgets[0] / pad;
    x.max = budgets[budgets.length - 1] * pad;
    x.afterBuildTicks = (scale) => { scale.ticks = budgets.map((value) => ({value})); };
    // Where a schedule was learned its mark is large; elsewhere it has another budget's shares.
    const trained = new Set(list(view.frontier).map((entry) => number(entry.total_budget)));
    const learns = curves.some((line) => line.schedule === 'learned');
    const scaled = learns && budgets.some((b) => !trained.has(b));
    const kinds = kindsOf(curves.flatMap((line) => line.cells));
    say(byId('accuracy-note'), `held-out questions, 95 % intervals${kinds}` +
      (learns && trained.size ?
      `; learned at ${[...trained].map((b) => budgetOf(view, b)).join(', ')}` +
        (scaled ? ' (large marks), with the nearest one’s shares elsewhere' : '') : ''));
    const sets = curves.map((line) => {
      const set = markedSet(line, line.cells.map((row) => plotPoint(row.total_budget, row)));
      if (line.schedule !== 'learned' || !scaled) return set;
      return {...set, pointRadius: line.cells.map((row) => (trained.has(row.total_budget) ? 6 : 3))};
    });
    const legend = curves.map((line) =>
      ({name: line.name, colour: line.colour, look: 'line', shape: line.shape}));
    charts.accuracy.options.plugins.levels.lines = [];
    if (dense) {
      // The level is drawn by the plugin from edge to edge; the set is for tooltips.
      sets.push(lineSet('dense', 'dense', budgets.map((b) => plotPoint(b, dense)),
          {borderWidth: 0, pointHoverRadius: 0}));
      charts.accuracy.options.plugins.levels.lines = [{value: dense.accuracy, colour: 'dense'}];
      legend.push({name: 'dense (every row read)', colour: 'dense', look: 'dashed'});
    }
    fitShares(charts.accuracy, sets.flatMap((set) =>
      set.data.flatMap((p) => (set.colour ? [p.low, p.high] : [p.y]))));
    fill(charts.accuracy, sets, `Held-out accuracy. ${curves.map((line) => `${line.name}: ` +
        line.cells.map((row) => `${percent(row.accuracy)} at ${row.total_budget}`).join(', '))
        .join('. ')}${dense ? `. Dense: ${percent(dense.accuracy)}` : ''}.`);
    drawLegend(card, legend);
  }

  function drawSchedule(view) {
    const card = byId('card-schedule');
    const reads = list(view.layer_reads).map(number);
    const priced = isPriced(view);
    const shares = list(view.policy_probabilities).map(number);
    if (!plotOr(card, reads.length ? '' : 'Waiting for the first policy: it is made when a ' +
        'worker has said how many layers the model has.')) return;
    const share = number(view.total_budget) === null || priced ? null :
      view.total_budget / reads.length;
    charts.schedule ??= makeChart(card.querySelector('.plot canvas'), 'bar', {
      x: axis('layer (0 comes first)', {grid: {display: false, borderColor: paint('edge')}}),
      y: priced ? axis(`share of its ${view.price}`, {beginAtZero: true, ticks: shareTicks}) :
        axis('reads', {beginAtZero: true, ticks: {precision: 0, maxTicksLimit: 6}}),
    }, {
      title: (items) => `layer ${items[0].label}`,
      label: (item) => ` ${item.dataset.reads[item.dataIndex] >= ALL_ROWS ? 'all' :
        format(item.dataset.reads[item.dataIndex], 2).replace(/\.?0+$/, '')} reads`,
      afterLabel: (item) => ` ${priced ? `share of the ${view.price}` : 'probability'} ` +
        format(item.dataset.probabilities[item.dataIndex], 3),
    });
    charts.schedule.options.scales.y.suggestedMax = share === null ? 1 : share * 1.15;
    charts.schedule.options.plugins.levels.lines =
        share === null ? [] : [{value: share, colour: 'uniform'}];
    say(byId('schedule-note'), (priced ? (view.price === 'time' ? 'where the time of decode steps is spent' :
      'where the bytes of keys and values are read') :
      'reads per head and step in each layer') +
        (view.granularity === 'layer' ? '' : ', in the mean over its heads') +
        (number(view.total_budget) === null ? '' :
          `, at total budget ${budgetOf(view, view.total_budget)}`));
    fill(charts.schedule, [{label: 'learned', data: priced ? shares : reads,
      backgroundColor: paint('learned'), probabilities: shares, reads, borderRadius: 3,
      maxBarThickness: 46, categoryPercentage: 0.82, barPercentage: 0.9}],
    `Learned schedule, reads per layer: ${reads.map(readsText).join(', ')}.`, reads.map((_, i) => String(i)));
    drawLegend(card, [{name: 'learned', colour: 'learned', look: 'bar'}, ...(share === null ? [] :
      [{name: `uniform share (${count(Math.round(share * 100) / 100)})`, colour: 'uniform',
        look: 'dashed'}])]);
  }

  const isByBudgets = (view) => list(view.frontier).some((row) =>
    typeof record(row).beats_uniform === 'boolean');

  function drawStaleness(view, history) {
    const card = byId('card-lag');
    if (!plotOr(card, waitingForUpdates(view))) return;
    const [top, bottom] = card.querySelectorAll('.plot canvas');
    const width = (scale) => { scale.width = 58; };  // the two plots share their x axis by eye
    charts.lag ??= makeChart(top, 'line', {
      x: {...updateAxis(), title: {display: false}},
      y: axis('updates', {beginAtZero: true, suggestedMax: 1, afterFit: width,
        ticks: {maxTicksLimit: 4}}),
    }, {...updateTitle, label: (item) => ` lag: ${format(item.parsed.y, 2)} updates`});
    charts.ess ??= makeChart(bottom, 'line', {
      x: updateAxis(), y: axis('of batch', {min: 0, max: 1, afterFit: width,
        ticks: {...shareTicks, maxTicksLimit: 3}}),
    }, {...updateTitle,
      label: (item) => ` effective sample size: ${percent(item.parsed.y)} of the batch`});
    const last = history[history.length - 1];
    const size = {showLine: true, borderWidth: 1.75};
    const weighs = !isByBudgets(view) || view.learner === 'reinforce';
    bottom.parentElement.hidden = !weighs;
    say(byId('lag-about'), 'how old the episodes of each update were' +
        (weighs ? ', and how much of the batch still counted' : '; this learner counts all alike'));
    fill(charts.lag, [lineSet('lag', 'fourth', series(history, 'lag'), size)],
        `Lag, now ${format(last.lag, 2)} updates.`);
    fill(charts.ess, [lineSet('effective sample size', 'third', series(history, 'ess'), size)],
        `Effective sample size, now ${percent(last.ess)} of the batch.`);
    drawLegend(card, [{name: 'lag (updates)', colour: 'fourth', look: 'line'}, ...(weighs ?
      [{name: 'effective sample size (share of batch)', colour: 'third', look: 'line'}] : [])]);
  }

  function drawSteps(view, history) {
    const card = byId('card-steps');
    // There a version is a table of schedules, which has no distance from the one before.
    card.hidden = isByBudgets(view);
    if (card.hidden) return;
    if (!plotOr(card, waitingForUpdates(view))) return;
    const [top, bottom] = card.querySelectorAll('.plot canvas');
    const width = (scale) => { scale.width = 74; };
    charts.kl ??= makeChart(top, 'line', {
      x: updateAxis(),
      y: axis('nats', {beginAtZero: true, afterFit: width, ticks: {maxTicksLimit: 4}}),
    }, {...updateTitle, label: (item) => ` step: ${format(item.parsed.y, 5)} nats`});
    charts.lags ??= makeChart(bottom, 'bar', {
      x: axis('lag in updates', {grid: {display: false, borderColor: paint('edge')}}),
      y: axis('results', {beginAtZero: true, afterFit: width,
        ticks: {maxTicksLimit: 4, precision: 0}}),
    }, {title: (items) => `lag ${items[0].label}`, label: (item) => ` ${plural(item.raw, 'result')}`});
    const last = history[history.length - 1];
    fill(charts.kl, [lineSet('step KL', 'learned', series(history, 'step_kl'),
        {showLine: true, borderWidth: 1.75})],
    `Kullback-Leibler divergence of each step, now ${format(last.step_kl, 5)} nats.`);
    const classes = list(view.lag_histogram).map(record);
    const results = classes.map((row) => number(row.results) || 0);
    fill(charts.lags, [{label: 'results by lag', data: results, backgroundColor: paint('fourth'),
      borderRadius: 3, maxBarThickness: 46, categoryPercentage: 0.82, barPercentage: 0.9}],
    `Results by lag: ${classes.map((row, i) => `${count(results[i])} of lag ${word(row.lag)}`)
        .join(', ')}.`, classes.map((row) => word(row.lag)));
    drawLegend(card, [{name: 'step KL (nats)', colour: 'learned', look: 'line'},
      {name: 'results by lag', colour: 'fourth', look: 'bar'}]);
  }

  function drawVersions(view) {
    const card = byId('card-versions');
    const learning = record(view.learning);
    const trained = styleLines(linesOf(view, learning.lines));
    card.hidden = !trained.length;
    if (card.hidden) return;
    say(byId('versions-note'),
        `the learned schedule at total budget ${budgetOf(view, view.total_budget)}, ` +
        'policy by policy');
    charts.versions ??= makeChart(card.querySelector('.plot canvas'), 'line',
        {x: {...updateAxis(), offset: true}, y: axis('accuracy', {ticks: shareTicks})},
        {title: (items) => `after update ${items[0].parsed.x}`, label: pointLabel});
    const sets = trained.map((line) =>
      markedSet(line, line.cells.map((row) => plotPoint(row.version, row))));
    const uniform = rowAt(view, learning.uniform);
    charts.versions.options.plugins.levels.lines =
        uniform ? [{value: uniform.accuracy, colour: 'uniform'}] : [];
    fitShares(charts.versions, [...sets.flatMap((set) => set.data.flatMap((p) => [p.low, p.high])),
      ...(uniform ? [uniform.accuracy] : [])]);
    fill(charts.versions, sets, `Held-out accuracy by policy version: ${trained.flatMap((line) =>
      line.cells.map((row) => `${percent(row.accuracy)} at ${row.version}`)).join(', ')}.`);
    drawLegend(card, [...sets.map((set) =>
      ({name: set.label, colour: set.colour, look: 'line', shape: set.pointStyle})),
    ...(uniform ? [{name: 'uniform', colour: 'uniform', look: 'dashed'}] : [])]);
  }

  // One row for cells whose prompts were read alike: those of a method that draws differ by budget.
  function drawPrefills(view, lines) {
    const cells = lines.flatMap((line) => line.cells.map((row) =>
      ({...row, way: readingOf(line), schedule: line.schedule})))
        .filter((row) => number(row.prefill_seconds) !== null);
    // A report has this table among its figures.
    byId('card-prefills').hidden = Boolean(inlined) || cells.every((row) => row.way === 'dense');
    const alike = new Map();
    for (const row of cells) {
      const key = [row.way, row.prefill_density, row.prefill_bytes_share].join();
      if (!alike.has(key)) alike.set(key, row);
    }
    const rows = [...alike.values()];
    const milliseconds = (v) => (number(v) === null ? '–' : `${(v * 1000).toFixed(0)} ms`);
    syncRows(byId('prefills'), rows.map((row) => [
      {text: rows.filter((other) => other.way === row.way).length < 2 ? row.way :
        `${row.way}, ${row.schedule}, budget ${budgetOf(view, row.total_budget)}`},
      {text: percent(row.prefill_density), kind: 'r'},
      {text: percent(row.prefill_bytes_share), kind: 'r wide'},
      {text: milliseconds(row.prefill_seconds), kind: 'r'},
      {text: milliseconds(row.prefill_selection_seconds), kind: 'r wide'},
      {text: percent(row.prefill_kept_mass), kind: 'r'}]));
  }

  function drawFrontier(view) {
    const rows = list(view.frontier).map(record);
    byId('card-frontier').hidden = !rows.some((row) => typeof row.beats_uniform === 'boolean');
    const above = (value) => {
      const found = record(value);
      if (!found.questions) return '–';
      return `${points(found.mean)} (${points(found.low)} to ${points(found.high)}), ` +
        plural(found.questions, 'question');
    };
    syncRows(byId('frontier'), rows.map((row) =>
      [{text: budgetOf(view, row.total_budget), kind: 'r'},
        {text: row.beats_uniform ? 'learned'
          : row.rival === null ? 'nothing known yet'
          : row.published && row.published !== row.rival
            ? `${word(row.published)}: best guess, not confirmed` : word(row.rival) || 'uniform'},
        {text: list(row.layer_reads).map(readsText).join(' ')},
        {text: above(row.claim), kind: 'r'},
        {text: above(row.candidate), kind: 'r wide'}]));
  }

  // What the surrogate believes reads to be worth, layer by layer, at up to three total budgets.
  function drawWorth(view) {
    const card = byId('card-worth');
    const rows = list(view.frontier).map(record).filter((row) => list(row.worth).length);
    card.hidden = !rows.length;
    if (card.hidden) return;
    const shown = [...new Set([0, Math.floor((rows.length - 1) / 2), rows.length - 1])]
        .map((i) => rows[i]);
    charts.worth ??= makeChart(card.querySelector('.plot canvas'), 'line', {
      x: axis('layer (0 comes first)', {type: 'linear', ticks: {autoSkip: true,
        callback: (v) => String(v)}, grid: {display: false, borderColor: paint('edge')}}),
      y: axis('points of reward', {ticks: {maxTicksLimit: 7,
        callback: (v) => format(v * 100, 0)}}),
    }, {title: (items) => `layer ${Math.round(items[0].parsed.x)}`,
      label: (item) => ` ${item.dataset.label}, ${item.raw.reads >= ALL_ROWS ? 'all reads' :
        plural(item.raw.reads, 'read')}: ` +
        `${format(item.raw.y * 100, 1)} (${format(item.raw.low * 100, 1)} to ` +
        `${format(item.raw.high * 100, 1)}) points`});
    const lines = shown.map((row, i) => ({name: `budget ${budgetOf(view, row.total_budget)}`,
      colour: ['learned', 'third', 'fourth'][i], shape: SHAPES[i], row}));
    // Side by side, so that intervals do not hide each other.
    const sets = lines.map((line, i) => ({...markedSet(line, list(line.row.worth).map(record)
        .map((w, layer) => ({x: layer + (i - (lines.length - 1) / 2) * 0.16, y: w.mean, low: w.low,
          high: w.high, reads: w.reads}))), showLine: false}));
    charts.worth.options.plugins.levels.lines = [{value: 0, colour: 'uniform'}];
    const {x, y} = charts.worth.options.scales;
    const layers = sets[0].data.map((_, layer) => layer);
    [x.min, x.max] = [-0.5, layers.length - 0.5];
    x.afterBuildTicks = (scale) => { scale.ticks = layers.map((value) => ({value})); };
    const ends = sets.flatMap((set) => set.data.flatMap((p) => [p.low, p.high]));
    y.suggestedMin = Math.min(0, ...ends);
    y.suggestedMax = Math.max(0, ...ends);
    fill(charts.worth, sets, lines.map((line) => `${line.name}: ${list(line.row.worth).map(record)
        .map((w, layer) => `layer ${layer} ${format(w.mean * 100, 1)} points`).join(', ')}`)
        .join('. '));
    drawLegend(card, lines.map((line) =>
      ({name: line.name, colour: line.colour, look: 'line', shape: line.shape})));
  }

  function drawTables(view, lines) {
    const workers = list(view.workers).map(record).sort((a, b) =>
      word(a.worker).localeCompare(word(b.worker)));
    const card = byId('card-workers');
    card.querySelector('.scroll').hidden = !workers.length;
    card.querySelector('.empty').hidden = workers.length > 0;
    say(card.querySelector('.empty'), FINAL.includes(view.state) ? 'No worker is here any more.' :
      'Waiting for a worker to join.');
    syncRows(byId('workers'), workers.map((worker) => {
      const away = nowOf(view) - worker.seen_unix_ms;
      const old = away > OLD_MS && !FINAL.includes(view.state) && isAlive(worker);
      return [{text: word(worker.worker)}, {text: word(worker.state)},
        {text: word(worker.device), kind: 'wide'},
        {text: count(worker.policy_version), kind: 'r wide'},
        {text: count(worker.episodes), kind: 'r'},
        {text: !Number.isFinite(away) ? '–' : inlined ? timeOf(worker.seen_unix_ms) :
          `${duration(Math.max(0, away) / 1000)} ago`, kind: old ? 'r old' : 'r'}];
    }));
    const failed = workers.filter((worker) => !isAlive(worker))
        .sort((a, b) => b.seen_unix_ms - a.seen_unix_ms);
    byId('failed').hidden = !failed.length;
    say(byId('failed'), failed.length ? `Ended with an error: ${failed.slice(0, FAILURES)
        .map((worker) => `${word(worker.worker)} (${word(worker.last_error)})`).join('; ')}` +
        (failed.length > FAILURES ? `; and ${failed.length - FAILURES} more` : '') : '');
    const refused = Object.entries(record(view.refused)).filter(([, n]) => number(n) > 0);
    byId('refused').hidden = !refused.length;
    say(byId('refused'), refused.length ? `Refused results: ${refused.map(([kind, n]) =>
      `${count(n)} ${kind}`).join(', ')}. Last: ${word(view.last_error)}` : '');
    byId('card-numbers').hidden = !lines.length;
    const compared = (key) => lines.some((line) => line.cells.some((row) => row[key]));
    const byUniform = compared('over_uniform');
    byId('card-numbers').classList.toggle('span', compared('over_dense') || byUniform ||
        (view.max_updates !== 0 && !byId('card-versions').hidden));
    byId('above-uniform').classList.toggle('gone', !byUniform);
    say(byId('above-narrow'), byUniform ? 'above uniform' : 'above dense');
    const rows = lines.flatMap((line) => line.cells);
    const families = ['dense', 'uniform'].map((name) => [name,
      Math.max(0, ...rows.map((row) => number(record(record(row[`over_${name}`]).holm).family) || 0))])
        .filter(([, size]) => size > 0).map(([name, size]) => `${count(size)} with ${name}`);
    const kinds = kindsOf(rows.flatMap((row) => [row.over_dense, row.over_uniform]));
    say(byId('numbers-note'), `95 % intervals${kindsOf(rows)}` +
      (kinds ? `, of differences${kinds}` : '') + (families.length ? '; * differs also by Holm’s rule, which asks all comparisons at once: ' +
        families.join(', ') : ''));
    const named = namer(lines.filter((line) => !isDense(line)));
    syncRows(byId('numbers'), [...lines].sort((a, b) => isDense(a) - isDense(b)).flatMap((line) =>
      line.cells.map((row) => {
        const {low, high} = interval(row);
        return [{text: isDense(line) ? 'dense' : named(line)},
          {text: line.schedule === 'learned' ? count(row.version) : '', kind: 'r wide'},
          {text: isDense(line) ? 'all' : row.total_budget ? budgetOf(view, row.total_budget) : 'its own',
            kind: 'r'},
          {text: `${percent(row.accuracy)} (${range(low, high)})`, kind: 'r'},
          {text: above(row.over_dense).join(''), kind: 'r wide'},
          {text: above(row.over_uniform).join(''), kind: byUniform ? 'r wide' : 'gone'},
          {text: above(byUniform ? row.over_uniform : row.over_dense)[0], kind: 'r narrow'},
          {text: number(row.answer_tokens) === null ? '–' : format(row.answer_tokens, 1),
            kind: 'r wide'},
          {text: count(row.n) + (row.repeats > 1 ? ` × ${row.repeats}` : ''), kind: 'r wide'}];
      })));
    const settings = list(view.settings).map(list);
    byId('card-settings').hidden = !settings.length;
    syncRows(byId('settings'),
        settings.map(([key, value]) => [{text: word(key)}, {text: word(value)}]));
  }

  // --- header and key numbers ---
  function drawHeadline(view) {
    const budget = number(view.total_budget);
    const headline = record(view.headline);
    const [learned, uniform, dense] = [headline.learned, headline.uniform, headline.dense]
        .map((place) => rowAt(view, place));
    const shown = learned || uniform || dense;
    say(byId('headline-name'), budget && (shown !== dense || !dense) ?
      `Accuracy at budget ${budgetOf(view, budget)}` : 'Accuracy, dense');
    say(byId('headline'), shown ? percent(shown.accuracy) : '–');
    if (learned && uniform) {
      const gain = (learned.accuracy - uniform.accuracy) * 100;
      const isGuess = list(view.frontier).map(record).some((row) =>
        number(row.total_budget) === budget && row.beats_uniform === false);
      say(byId('headline-note'), `${isGuess ? 'best guess, not confirmed' : 'learned'}; ${gain < 0 ? '−' : '+'}${Math.abs(gain).toFixed(1)} ` +
          `points on uniform (${percent(uniform.accuracy)})`);
    } else {
      say(byId('headline-note'), !shown ? 'not evaluated yet' :
        shown === dense ? 'every row read' :
        view.max_updates === 0 ? `${shown.method}, ${shown.schedule}` :
        `${shown.schedule} only, so far`);
    }
  }

  function drawTiles(view, history) {
    const rewards = history.map((h) => number(h.mean_reward)).filter((v) => v !== null);
    const span = Math.max(1, Math.min(NOW, Math.floor(rewards.length / 2)));
    const now = rewards.length ? mean(rewards.slice(-span)) : null;
    const first = rewards.length ? mean(rewards.slice(0, span)) : null;
    say(byId('reward-now'), format(now, 3));
    say(byId('reward-note'), rewards.length < 2 ? 'no trend yet' :
      `mean of the last ${span}; first ${span}: ${format(first, 3)}`);
    say(byId('speed'), number(view.episodes_per_second) === null ? '–' :
      `${format(view.episodes_per_second, 1)} /s`);
    say(byId('speed-note'), `${plural(number(view.episodes) || 0, 'episode')} in all`);
    const last = history[history.length - 1] || {};
    say(byId('lag-now'), history.length ? format(last.lag, 1) : '–');
    say(byId('lag-note'), history.length ? `updates; ${percent(last.ess)} of the batch counts` :
      'no update yet');
    const workers = list(view.workers).map(record).filter(isAlive);
    const live = workers.filter((w) => nowOf(view) - w.seen_unix_ms <= OLD_MS).length;
    const ended = FINAL.includes(view.state);
    say(byId('worker-count'), count(ended ? workers.length : live));
    say(byId('worker-note'), ended ? 'when the run ended' : live < workers.length ?
      `${workers.length - live} not seen for 30 s` :
      view.synchronous ? 'synchronous updates' : 'seen lately');
    say(byId('time'), duration(view.wall_seconds));
    const started = number(view.started_unix_ms);
    say(byId('time-note'), started ? `since ${new Date(started).toLocaleString('en-GB',
        {day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit'})}` : '');
  }

  function drawHeader(view) {
    const name = word(view.experiment) || 'allot';
    const state = word(view.state) || 'starting';
    document.title = `${name} · ${state} · allot`;
    say(byId('experiment'), name);
    say(byId('state'), state);
    byId('state').dataset.state = state;
    const model = record(view.model);
    say(byId('model'), model.architecture ? [word(model.architecture),
      `${magnitude(model.parameters)} parameters`, plural(model.layers, 'layer'),
      `${plural(model.heads, 'head')} (${count(model.kv_heads)} for keys and values)`,
      `head size ${count(model.head_dim)}`].join(' · ') : 'The model is not known yet.');
    const most = number(view.max_updates);
    const done = number(view.updates) || 0;
    const units = FINAL.includes(view.state) ? 0 : number(view.open_units) || 0;
    const track = byId('progress-bar').parentElement;
    track.hidden = !most;
    if (most) {
      byId('progress-bar').style.width = `${Math.min(100, (100 * done) / most)}%`;
      track.setAttribute('aria-valuemax', String(most));
      track.setAttribute('aria-valuenow', String(done));
    }
    byId('progress').hidden = !most && !units;
    say(byId('progress-text'), [most ? `${count(done)} of ${plural(most, 'update')}` : '',
      units ? `${plural(units, 'evaluation unit')} to go` : ''].filter(Boolean).join(', '));
    byId('waiting').hidden = !word(view.waiting);
    say(byId('waiting'), word(view.waiting) ? `Not progressing: ${word(view.waiting)}` : '');
    byId('edit-refused').hidden = !word(view.edit_refused);
    say(byId('edit-refused'), word(view.edit_refused && `Edit refused: ${view.edit_refused}`));
    byId('audits').hidden = !word(view.audits);
    say(byId('audits'), word(view.audits && `Audits: ${view.audits}`));
    say(byId('run-id'), view.run_id ? `run ${word(view.run_id)}` : '');
  }

  // A run without updates, a sweep, has nothing to say about learning.
  function layOut(view) {
    const sweep = view.max_updates === 0;
    for (const id of ['card-reward', 'card-schedule', 'card-lag', 'card-steps', 'tile-reward', 'tile-speed',
      'tile-lag']) {
      byId(id).hidden = sweep;
    }
  }

  let shown = null;  // the view on the page
  function show(view) {
    shown = record(view);
    const history = list(shown.history).map(record).filter((h) => number(h.version) !== null);
    const lines = linesOf(shown, shown.lines).sort((a, b) =>
      a.schedule.localeCompare(b.schedule) || a.method.localeCompare(b.method));
    drawHeader(shown);
    layOut(shown);
    drawHeadline(shown);
    drawTiles(shown, history);
    if (shown.max_updates !== 0) {
      drawReward(shown, history);
      drawSchedule(shown);
      drawStaleness(shown, history);
      drawSteps(shown, history);
    }
    drawAccuracy(shown, lines);
    drawVersions(shown);
    drawTables(shown, lines);
    drawPrefills(view, lines);
    drawFrontier(shown);
    drawWorth(shown);
    document.documentElement.dataset.shown = word(shown.now_unix_ms);
  }

  // --- keeping it fresh ---
  const hasEnded = () => shown !== null && FINAL.includes(shown.state);
  function notice(text) {
    byId('notice').hidden = !text;
    say(byId('notice'), text);
  }

  async function refresh() {
    let view;
    try {
      const response = await fetch('api/run',
          {cache: 'no-store', signal: AbortSignal.timeout(GIVE_UP_MS)});
      if (!response.ok) throw new Error(`status ${response.status}`);
      view = await response.json();
    } catch {
      // The server of a run on a laptop goes when the run has ended.
      if (!hasEnded()) notice('connection lost, retrying');
      setTimeout(refresh, hasEnded() ? REST_MS : REFRESH_MS);
      return;
    }
    show(view);
    notice(staleness(shown));
    const clock = timeOf(Date.now());
    say(byId('freshness'), hasEnded() ? `the run has ended: last refreshed at ${clock}` :
      `refreshed at ${clock}`);
    setTimeout(refresh, hasEnded() ? REST_MS : REFRESH_MS);
  }

  start();
  byId('prefill').addEventListener('change', (event) => {
    readBy = event.target.value;
    if (shown) show(shown);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readTheme();
    if (shown) show(shown);
  });
  if (inlined) {
    show(JSON.parse(inlined.textContent));
    const made = number(shown.now_unix_ms);
    say(byId('freshness'), made ? `report of ${new Date(made).toLocaleString('en-GB')}` : 'report');
  } else {
    refresh();
  }
})();
