// Charts of what the broker measured: <div id="charts" data-series="/api/v1/…" data-live="/api/v1/events/…">. A moment without
// a measurement is a gap; a mark is a line with its text.
"use strict";

const charts = (() => {
  // Each line has a colour, a pattern, and a text that looks like the pattern.
  const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]];
  const PATTERNS = ["——", "– –", "····", "–·–"];
  const POWERS = Array.from({ length: 45 }, (_, power) => 2 ** power);
  const UNITS = ["B", "KiB", "MiB", "GiB"];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const size = (value) => {
    let unit = 0;
    for (; value >= 1024 && unit < UNITS.length - 1; unit += 1) value /= 1024;
    return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${UNITS[unit]}`;
  };
  const bytes = (value) => `${size(value)}/s`;
  const number = (unit) => (value) => `${Math.round(value * 100) / 100}${unit}`;

  // A chart in `place`: lines by name, how a value is written, `data` as uPlot has it, with times in seconds.
  const draw = (place, { names, write, data, marks = [], height = 170, range }) => {
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const palette = ["--link", "--warn", "--bad", "--good"].map(colour);
    const lines = (plot) => {
      plot.ctx.fillStyle = plot.ctx.strokeStyle = colour("--edge");
      for (const { at_ms: at, text } of marks) {
        const x = plot.valToPos(at / 1000, "x", true);
        if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width) continue;
        plot.ctx.fillRect(x, plot.bbox.top, devicePixelRatio, plot.bbox.height);
        plot.ctx.fillText(text, x + 4, plot.bbox.top + 12);
      }
    };
    const plot = new uPlot({
      width: Math.max(200, place.clientWidth), height,
      legend: { show: Boolean(range), live: false }, cursor: { show: false }, hooks: { draw: [lines] },
      scales: { x: { range: range && (() => range()) }, y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8)), space: 80 },
        { ...axis, size: 84, values: (_, ticks) => ticks.map(write), ...([bytes, size].includes(write) && { incrs: POWERS }) },
      ],
      series: [{}, ...names.map((label, at) => ({ label, stroke: palette[at % 4], width: 1.5, dash: DASHES[at % 4], points: { show: data[0].length < 3 } }))],
    }, data, place);
    return plot;
  };

  const place = document.getElementById("charts");
  if (!place) return { draw, number };

  // Title, how a value is written, and the columns with their names; a column that ends with a dot stands for all that begin so.
  const percentiles = (api) => ["p50", "p95", "p99"].map((name) => [`${api}.${name}`, name]);
  const TRAFFIC = [["Bytes", bytes, [["bytes_in", "in"], ["bytes_out", "out"]]], ["Records", number("/s"), [["messages_in", "records in"]]]];
  const CHARTS = place.dataset.live ? [
    TRAFFIC[0], ["Records and requests", number("/s"), [["messages_in", "records in"], ["requests", "requests"]]],
    ["Errors by code", number("/s"), [["errors.", ""]]],
    ["Latency of Produce", number(" ms"), percentiles("produce_ms")],
    ["Latency of Fetch, with its wait for records", number(" ms"), percentiles("fetch_ms")],
    ["Batches made durable by one fdatasync", number(""), [["commit_batches", "batches"]]],
    ["Memory", size, [["resident_bytes", "resident"]]], ["Processor", number(" of a core"), [["cpu", "used"]]],
  ] : TRAFFIC;
  let series = { times: [], columns: {}, marks: [], period_ms: 1000 };
  const drawn = CHARTS.map(([title, write, columns]) => {
    const figure = place.appendChild(document.createElement("figure"));
    figure.className = "chart";
    figure.appendChild(document.createElement("figcaption")).textContent = title;
    const box = figure.appendChild(document.createElement("div"));
    box.setAttribute("aria-hidden", "true"); // The line below says the same in words.
    const now = figure.appendChild(document.createElement("p"));
    now.className = "now";
    return { write, columns, box, now, plot: null, shown: "" };
  });
  const columnsOf = (chart) => chart.columns.flatMap(([name, label]) => (name.endsWith(".")
    ? Object.keys(series.columns).filter((each) => each.startsWith(name)).sort().map((each) => [each, each.slice(name.length)]) : [[name, label]]));
  const dataOf = (columns) => {
    const data = [[], ...columns.map(() => [])];
    series.times.forEach((at, index) => {
      const before = series.times[index - 1] ?? at;
      if (at - before > 3 * series.period_ms) { data[0].push((before + series.period_ms) / 1000); data.slice(1).forEach((each) => each.push(null)); }
      data[0].push(at / 1000);
      columns.forEach(([name], place) => data[place + 1].push(series.columns[name]?.[index] ?? null));
    });
    return data;
  };
  const show = () => {
    for (const chart of drawn) {
      const columns = columnsOf(chart).filter(([name]) => series.columns[name]);
      const shown = columns.map(([name]) => name).join() + series.period_ms;
      if (chart.plot && (shown !== chart.shown || !columns.length)) { chart.plot.destroy(); chart.plot = null; }
      chart.shown = shown;
      if (chart.plot) chart.plot.setData(dataOf(columns));
      else if (columns.length) chart.plot = draw(chart.box, { names: columns.map(([, label]) => label), write: chart.write, data: dataOf(columns), marks: series.marks });
      chart.now.replaceChildren(...columns.flatMap(([name, label], at) => {
        const line = Object.assign(document.createElement("span"), { className: `line${at % 4}`, textContent: PATTERNS[at % 4] });
        line.setAttribute("aria-hidden", "true");
        const value = series.columns[name].at(-1);
        return [line, ` ${label}: ${value === null || value === undefined ? "none" : chart.write(value)} `];
      }));
      if (!columns.length) chart.now.textContent = "none";
    }
  };
  const redraw = () => { for (const chart of drawn) chart.shown = ""; show(); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  const [span, whose] = ["span", "whose"].map((id) => document.getElementById(id));
  const isLive = () => series.period_ms === 1000 && !whose?.selectedIndex;
  const load = async () => {
    const asked = (whose?.value ?? place.dataset.series) + (span ? `?span=${span.value}` : "");
    const answer = await fetch(asked).catch(() => null);  // The broker restarts, or the page is left.
    if (answer?.ok) { series = await answer.json(); show(); }
  };
  // One point of the stream is a row of the ring.
  const add = (point) => {
    if (!isLive()) return;
    const values = {};
    for (const [name, value] of Object.entries(point))
      if (value !== null && typeof value === "object") for (const [each, part] of Object.entries(value)) values[`${name}.${each}`] = part;
      else values[name] = value;
    for (const name of Object.keys(values)) if (name !== "at_ms" && !(name.endsWith("_ms") && values[name] === null)) series.columns[name] ??= series.times.map(() => null);
    series.times.push(point.at_ms);
    for (const [name, column] of Object.entries(series.columns)) column.push(values[name] ?? null);
    if (series.times.length > 600) for (const each of [series.times, ...Object.values(series.columns)]) each.shift();
    show();
  };
  addEventListener("DOMContentLoaded", async () => {
    await load();
    for (const each of [span, whose]) each?.addEventListener("change", load);
    if (place.dataset.live) tidelog.live(place.dataset.live, add);
    setInterval(() => { if (!document.hidden && !isLive()) load(); }, 5_000);
  });
  return { draw, number };
})();
