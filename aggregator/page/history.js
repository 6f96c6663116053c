// The page of many runs. embed.cmake puts kit.js before it. All that it shows comes from run files,
// which may hold anything: it goes into the document as text only.
(() => {
  const MOST = 8;    // runs compared: as many as there are colours
  const SMOOTH = 9;  // updates in the moving average
  const {COLOURS, SHAPES, byId, number, list, record, word, percent, count, mean, say, readTheme,
    axis, shareTicks, makeChart, fill, lineSet, markedSet, drawLegend, plotOr, start} = kit;
  const charts = window.allotCharts = {};
  const chosen = new Map();  // run id of the address -> its place among COLOURS
  const views = new Map();   // -> its view
  let runs = [];

  const short = (id) => word(id).slice(-6);
  // A run and its export are two here: their folder tells them apart.
  const nameOf = (run) => `${word(run.experiment)} ${short(run.run_id)}` +
    (runs.filter((one) => one.run_id === run.run_id).length > 1 ? ` (${word(run.folder)})` : '');
  const share = (text) => (text === null || text === undefined ? '–' : percent(Number(text)));
  const when = (ms) => (number(ms) ? new Date(ms).toLocaleString('en-GB', {day: 'numeric',
    month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit'}) : '–');

  async function ask(path) {
    const response = await fetch(path, {cache: 'no-store'});
    if (!response.ok) throw new Error(await response.text());
    return response.json();
  }

  // --- the list ---
  function link(text, href) {
    const a = document.createElement('a');
    a.href = href;
    a.textContent = text;
    return a;
  }

  function addCell(row, content, kind) {
    const cell = row.insertCell();
    if (kind) cell.className = kind;
    cell.append(content);
    return cell;
  }

  function addRow(run) {
    const row = byId('runs').insertRow();
    row.id = `run-${run.id}`;
    const box = document.createElement('input');
    box.type = 'checkbox';
    box.disabled = Boolean(run.problem);
    box.setAttribute('aria-label', `compare ${nameOf(run)}`);
    box.addEventListener('change', () => choose(run, box));
    addCell(row, box);
    if (run.problem) {
      addCell(row, `${word(run.folder)}: ${word(run.problem)}`, 'bad').colSpan = 9;
      return;
    }
    addCell(row, link(word(run.experiment), `run/${run.id}/`));
    const cell = addCell(row, short(run.run_id), 'quiet');
    cell.title = word(run.run_id);
    addCell(row, word(run.state), 'wide');
    addCell(row, number(run.max_updates) ? `${count(run.version)} / ${count(run.max_updates)}` : '–', 'r wide');
    addCell(row, '…', 'r wide reward');
    for (const name of ['learned', 'uniform']) addCell(row, '…', `r ${name}`);
    addCell(row, when(run.started_unix_ms), 'quiet wide');
    const folder = addCell(row, `${word(run.folder)} `, 'quiet wide');
    if (run.report) folder.append(link('report', `run/${run.id}/report/report.html`));
  }

  // What takes long to read, one run after the other.
  async function fillRow(run) {
    const row = byId(`run-${run.id}`);
    const put = (name, text) => say(row.querySelector(`.${name}`), text);
    try {
      const status = await ask(`run/${run.id}/api/status`);
      const best = record(status.best);
      put('reward', share(status.reward));
      put('learned', best.accuracy === undefined ? '–' : share(best.accuracy));
      put('uniform', best.uniform === undefined ? '–' : share(best.uniform));
      row.querySelector('.learned').title = best.accuracy === undefined ? '' :
        `${word(best.schedule)}, ${word(best.method)}, total budget ${count(best.total_budget)}, ` +
        `version ${count(best.version)}; 95 % interval ${list(best.ci95).map(share).join(' to ')} ` +
        `(${word(best.interval)})`;
    } catch (error) {
      for (const name of ['reward', 'learned', 'uniform']) put(name, '–');
      row.querySelector('.learned').title = word(error.message);
      row.classList.add('bad');
    }
  }

  // --- the comparison ---
  async function choose(run, box) {
    if (!box.checked) {
      chosen.delete(run.id);
    } else if (chosen.size >= MOST) {
      box.checked = false;
      notice(`At most ${MOST} runs can be compared.`);
      return;
    } else {
      const taken = new Set(chosen.values());
      chosen.set(run.id, COLOURS.findIndex((_, place) => !taken.has(place)));
    }
    notice('');
    location.replace(`#${[...chosen.keys()].join(',')}`);
    await draw();
  }

  function notice(text) {
    byId('notice').hidden = !text;
    say(byId('notice'), text);
  }

  async function viewOf(run) {
    if (!views.has(run.id)) views.set(run.id, await ask(`run/${run.id}/api/run`));
    return views.get(run.id);
  }

  const point = (row) => ({x: row.total_budget, y: row.accuracy, low: list(row.ci95)[0],
    high: list(row.ci95)[1], kind: word(row.interval)});
  // The method of the headline's learned point, or else of the first line.
  function methodOf(view, lines) {
    const place = record(view.headline).learned;
    const headline = record(list(view.evaluations)[place]);
    return word(headline.method) || word(record(lines[0]).method);
  }
  function curves(view) {
    const lines = list(view.lines).map(record).filter((line) => line.schedule !== 'dense');
    const method = methodOf(view, lines);
    const of = (schedule) => {
      const line = lines.find((one) => one.schedule === schedule && one.method === method);
      return line ? list(line.rows).map((place) => record(list(view.evaluations)[place]))
          .filter((row) => number(row.accuracy) !== null).map(point).sort((a, b) => a.x - b.x) : [];
    };
    return {learned: of('learned'), uniform: of('uniform')};
  }

  function smooth(history) {
    return history.map((row, i) => ({x: row.version, y: mean(
        history.slice(Math.max(0, i - SMOOTH + 1), i + 1).map((one) => one.mean_reward))}));
  }

  function makeCharts() {
    const label = (item) => `${item.dataset.label}: ${percent(item.parsed.y)}`;
    charts.accuracy = makeChart(byId('card-accuracy').querySelector('canvas'), 'line', {
      x: axis('total budget, reads per head and step or % of bytes or time (log scale)', {type: 'logarithmic',
        grid: {display: false}, ticks: {callback: (v) => String(v)}}),
      y: axis('accuracy', {min: 0, max: 1, ticks: shareTicks})}, {label});
    charts.reward = makeChart(byId('card-reward').querySelector('canvas'), 'line', {
      x: axis('update', {type: 'linear', ticks: {maxTicksLimit: 9}}),
      y: axis('reward', {min: 0, max: 1, ticks: shareTicks})}, {label});
  }

  // The axis has the budgets that were measured, with some room at both ends.
  function layBudgets(budgets) {
    const {x} = charts.accuracy.options.scales;
    const pad = budgets.length > 1 ? (budgets[budgets.length - 1] / budgets[0]) ** 0.06 : 2;
    x.min = (budgets[0] || 1) / pad;
    x.max = (budgets[budgets.length - 1] || 1) * pad;
    x.afterBuildTicks = (scale) => { scale.ticks = budgets.map((value) => ({value})); };
  }

  async function draw() {
    const shown = [];
    for (const run of runs.filter((one) => chosen.has(one.id))) {
      const place = chosen.get(run.id);
      try {
        shown.push({name: nameOf(run), colour: COLOURS[place], shape: SHAPES[place % SHAPES.length],
          view: record(await viewOf(run))});
      } catch (error) {
        notice(`${nameOf(run)}: ${word(error.message)}`);
      }
    }
    const accuracy = [], reward = [], legend = [];
    // Reads, shares of bytes and shares of a device's time have no axis in common.
    const settingOf = (run, key) =>
      word((list(run.view.settings).map(list).find(([name]) => name === key) || [])[1]);
    const priceOf = (run) => {
      const times = settingOf(run, 'spec.policy.stepTimes');
      return (word(run.view.price) || 'reads') + (times ? ` (${times})` : '');
    };
    for (const run of shown) {
      const fits = priceOf(run) === priceOf(shown[0]);
      if (!fits) {
        notice(`${run.name} has budgets of ${priceOf(run)}, and ${shown[0].name} of ` +
          `${priceOf(shown[0])}: its accuracy is not drawn beside it.`);
      }
      const {learned, uniform} = fits ? curves(run.view) : {learned: [], uniform: []};
      if (learned.length) accuracy.push(markedSet(run, learned));
      if (uniform.length) {
        accuracy.push(lineSet(`${run.name}, uniform`, run.colour,
            uniform.map(({x, y}) => ({x, y})), {borderDash: [6, 4], pointRadius: 2.5}));
      }
      const history = list(run.view.history).map(record).filter((h) => number(h.mean_reward) !== null);
      if (history.length) reward.push(lineSet(run.name, run.colour, smooth(history)));
      legend.push({name: run.name, colour: run.colour, look: 'line', shape: run.shape});
    }
    const kinds = [...new Set(accuracy.flatMap((set) => set.data.map(({kind}) => kind)))]
        .filter(Boolean).sort().join(', ');
    say(byId('accuracy-note'), `held-out questions, 95 % intervals${kinds ? ` (${kinds})` : ''}; ` +
      'dashed: the uniform schedule');
    layBudgets([...new Set(accuracy.flatMap((set) => set.data.map(({x}) => x)))]
        .sort((a, b) => a - b));
    show('accuracy', accuracy, legend, 'held-out accuracy against total budget');
    show('reward', reward, legend.map((entry) => ({...entry, shape: undefined})), 'reward by update');
  }

  function show(name, sets, legend, what) {
    const card = byId(`card-${name}`);
    const missing = !chosen.size ? 'Choose runs in the list.' :
      !sets.length ? 'None of the runs chosen has been measured.' : '';
    if (!plotOr(card, missing)) return;
    drawLegend(card, legend);
    fill(charts[name], sets, `${what}: ${legend.map((entry) => entry.name).join(', ')}`);
  }

  async function main() {
    start();
    makeCharts();
    const all = record(await ask('api/runs'));
    runs = list(all.runs).map(record).sort((a, b) =>
      (number(b.started_unix_ms) || 0) - (number(a.started_unix_ms) || 0));
    say(byId('folder'), `${count(runs.length)} in ${word(all.folder)}` +
      (all.more ? '; there are more, which are not shown' : ''));
    byId('no-runs').hidden = runs.length > 0;
    say(byId('no-runs'), 'There is no run in this folder.');
    runs.forEach(addRow);
    const good = runs.filter((run) => !run.problem);
    const wanted = location.hash.slice(1).split(',').filter((id) => good.some((run) => run.id === id));
    for (const id of (wanted.length ? wanted : good.slice(0, 2).map((run) => run.id)).slice(0, MOST)) {
      chosen.set(id, chosen.size);
      byId(`run-${id}`).querySelector('input').checked = true;
    }
    await draw();
    for (const run of good) await fillRow(run);
    document.documentElement.dataset.shown = 'all';
  }

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    readTheme();
    draw();
  });
  main().catch((error) => notice(word(error.message)));
})();
