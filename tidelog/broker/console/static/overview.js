// The charts of the overview: the points measured so far, and each new one as it comes.
"use strict";

(() => {
  const SPAN_MS = 900_000;
  const PERIOD_MS = 2_000;
  // Each line has a colour, a pattern, and a text that looks like the pattern.
  const DASHES = [[], [6, 4], [2, 3], [10, 4, 2, 4]];
  const PATTERNS = ["——", "– –", "····", "–·–"];
  const POWERS = Array.from({ length: 45 }, (_, power) => 2 ** power);
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return ["--link", "--warn", "--bad", "--good", "--faint"].map((name) => style.getPropertyValue(name).trim());
  };
  const BYTES = ["B/s", "KiB/s", "MiB/s", "GiB/s"];
  const bytes = (value) => {
    let unit = 0;
    for (; value >= 1024 && unit < BYTES.length - 1; unit += 1) value /= 1024;
    return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${BYTES[unit]}`;
  };
  const number = (unit) => (value) => `${Math.round(value * 100) / 100}${unit}`;
  const memory = (value) => bytes(value).replace("/s", "");
  const percentile = (api, name) => (point) => (point[api] ? point[api][name] : null);

  // Title, how a value is written, and the lines: label and value of a point. `lines` null: one for each error code.
  const CHARTS = [
    ["Bytes", bytes, [["in", (point) => point.bytes_in], ["out", (point) => point.bytes_out]]],
    ["Records and requests", number("/s"),
      [["records in", (point) => point.messages_in], ["requests", (point) => point.requests]]],
    ["Errors by code", number("/s"), null],
    ["Latency of Produce", number(" ms"),
      ["p50", "p95", "p99"].map((name) => [name, percentile("produce_ms", name)])],
    ["Latency of Fetch, with its wait for records", number(" ms"),
      ["p50", "p95", "p99"].map((name) => [name, percentile("fetch_ms", name)])],
    ["Batches made durable by one fdatasync", number(""), [["batches", (point) => point.commit_batches]]],
    ["Memory", memory, [["resident", (point) => point.resident_bytes]]],
    ["Processor", number(" %"), [["of one core", (point) => point.cpu * 100]]],
  ];

  let points = [];
  let codes = [];
  const place = document.getElementById("charts");
  const drawn = CHARTS.map(([title, write, lines]) => {
    const figure = document.createElement("figure");
    figure.className = "chart";
    const caption = figure.appendChild(document.createElement("figcaption"));
    caption.textContent = title;
    const box = figure.appendChild(document.createElement("div"));
    const now = figure.appendChild(document.createElement("p"));
    now.className = "now";
    box.setAttribute("aria-hidden", "true"); // The line below says the same in words.
    place.append(figure);
    return { title, write, lines, box, now, plot: null };
  });

  const linesOf = (chart) => chart.lines || codes.map((code) => [code, (point) => point.errors[code] || 0]);
  // Nothing was measured while no page was open: a point without values ends the line there.
  const withGaps = () => points.flatMap((point, index) => {
    const after = index ? points[index - 1].at_ms : point.at_ms;
    return point.at_ms - after > 3 * PERIOD_MS ? [{ at_ms: after + PERIOD_MS }, point] : [point];
  });
  const valuesOf = (chart) => {
    const shown = withGaps();
    return [
      shown.map((point) => point.at_ms / 1000),
      ...linesOf(chart).map(([, value]) => shown.map((point) => ("errors" in point ? value(point) : null))),
    ];
  };
  const range = () => {
    const now = points[points.length - 1].at_ms;
    return [(now - SPAN_MS) / 1000, now / 1000];
  };
  const widthOf = (chart) => Math.max(200, chart.box.clientWidth);

  const make = (chart) => {
    if (chart.plot) chart.plot.destroy();
    chart.plot = null;
    const lines = linesOf(chart);
    if (!lines.length || !points.length) return;
    const palette = colours();
    const faint = palette[4];
    const isBytes = chart.write === bytes || chart.write === memory;
    const axis = { stroke: faint, grid: { stroke: faint, width: 0.25 }, ticks: { stroke: faint, width: 0.25 } };
    chart.plot = new uPlot({
      width: widthOf(chart),
      height: 170,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { range }, y: { range: (_, low, high) => [Math.min(0, low || 0), (high || 1) * 1.1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((tick) => new Date(tick * 1000).toTimeString().slice(0, 8)), space: 80 },
        { ...axis, size: 70, values: (_, ticks) => ticks.map(chart.write), ...(isBytes && { incrs: POWERS }) },
      ],
      series: [{}, ...lines.map(([label], index) => ({
        label,
        stroke: palette[index % 4],
        width: 1.5,
        dash: DASHES[index % DASHES.length],
        points: { show: true, size: 3 },
      }))],
    }, valuesOf(chart), chart.box);
  };

  const tell = (chart) => {
    const last = points[points.length - 1];
    chart.now.replaceChildren(...linesOf(chart).flatMap(([label, value], index) => {
      const line = document.createElement("span");
      line.className = `line${index % 4}`;
      line.setAttribute("aria-hidden", "true");
      line.textContent = PATTERNS[index % PATTERNS.length];
      const found = last ? value(last) : null;
      return [line, ` ${label}: ${found === null || found === undefined ? "none" : chart.write(found)} `];
    }));
    if (!linesOf(chart).length) chart.now.textContent = "none";
  };

  const show = () => {
    const found = [...new Set(points.flatMap((point) => Object.keys(point.errors)))].sort();
    const isNew = found.join() !== codes.join();
    codes = found;
    for (const chart of drawn) {
      if (!chart.plot || (!chart.lines && isNew)) make(chart);
      else chart.plot.setData(valuesOf(chart));
      tell(chart);
    }
  };

  const redraw = () => drawn.forEach(make);
  window.addEventListener("resize", () => drawn.forEach((chart) =>
    chart.plot && chart.plot.setSize({ width: widthOf(chart), height: 170 })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  fetch("/api/v1/overview/series").then((answer) => answer.json()).then((series) => {
    points = series.points;
    show();
    tidelog.live("/api/v1/events/overview", (point) => {
      points = [...points, point].filter((each) => point.at_ms - each.at_ms < SPAN_MS);
      show();
    });
  });
})();
