// The chart of a group's lag, from the numbers in the page as it refreshes, and the preview of a reset.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const MOST_POINTS = 360;
  const MOST_SERIES = 8;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [14, 6], [4, 4], [1, 5], [10, 2], [6, 2, 1, 2]];
  const chart = document.getElementById("chart");
  const section = () => document.getElementById("group");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const read = () => new Map([...section().querySelectorAll("[data-series]")]
    .map((cell) => [cell.dataset.series, Number(cell.dataset.value)]));

  const now = () => Number(section().dataset.nowMs) / 1000;
  const first = read();
  const [total, ...partitions] = first.keys();
  partitions.sort((one, other) => first.get(other) - first.get(one));
  const names = [total, ...partitions.slice(0, MOST_SERIES)];
  const data = [[], ...names.map(() => [])];
  const axis = () => ({ stroke: colour("--text"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } });
  const width = () => Math.max(chart.clientWidth, 200);
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    const colours = ["--link", "--warn", "--good", "--bad"];
    plot = new uPlot({
      width: width(), height: 220,
      axes: [axis(), { ...axis(), size: 70 }],
      // uPlot would give a single point a range of years.
      scales: { x: { range: () => [Math.min(data[0][0] ?? now(), now() - 60), now()] }, y: { range: (_, low, high) => [0, Math.max(high || 0, 1)] } },
      series: [{}, ...names.map((label, number) => ({
        label, stroke: colour(colours[number % colours.length]), width: number ? 1 : 2, dash: DASHES[number], points: { show: data[0].length < 3 },
      }))],
    }, data, chart);
  };
  const sample = () => {
    if (data[0].at(-1) === now()) return;
    const found = read();
    data[0].push(now());
    names.forEach((name, number) => data[number + 1].push(found.get(name) ?? null));
    if (data[0].length > MOST_POINTS) data.forEach((values) => values.shift());
    plot.setData(data);
  };
  draw();
  sample();
  document.addEventListener("htmx:afterSettle", sample);
  window.addEventListener("resize", () => plot.setSize({ width: width(), height: 220 }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const form = document.getElementById("reset");
  if (!form) return;
  const plan = document.getElementById("plan");
  const to = form.elements.to;
  const value = form.elements.value;
  const number = document.getElementById("number");
  const time = document.getElementById("time");
  const choose = () => {
    for (const label of form.querySelectorAll("[data-for]")) label.hidden = !label.dataset.for.split(" ").includes(to.value);
    value.value = to.value === "timestamp" ? (time.value && Date.parse(`${time.value}Z`)) : ["offset", "shift"].includes(to.value) ? number.value : "";
    plan.hidden = true;
  };
  for (const field of [to, number, time, form.elements.topics]) field.addEventListener("input", choose);
  form.addEventListener("answered", () => { plan.hidden = true; });
  choose();

  const show = (body) => {
    const rows = plan.querySelector("tbody");
    rows.replaceChildren();
    for (const row of body.rows) {
      const change = row.new_offset === null || row.committed === null ? "" : row.new_offset - row.committed;
      const cells = [
        `${row.topic}-${row.partition}`, row.committed ?? "none", row.new_offset ?? "unchanged", change, row.start_offset, row.end_offset,
      ];
      const line = rows.insertRow();
      cells.forEach((text, at) => {
        const cell = line.insertCell();
        cell.textContent = text;
        if (at) cell.className = "number";
      });
    }
    if (body.total > body.rows.length) rows.insertRow().insertCell().textContent = `and ${body.total - body.rows.length} more`;
    const refusal = document.getElementById("refusal");
    refusal.textContent = body.refusal;
    refusal.hidden = !body.refusal;
    document.getElementById("confirm").hidden = Boolean(body.refusal);
    plan.hidden = false;
  };
  document.getElementById("preview").addEventListener("click", async () => {
    const asked = new URLSearchParams({ group_id: form.elements.group_id.value, to: to.value, value: value.value });
    for (const topic of form.elements.topics.value.split("\n")) if (topic.trim()) asked.append("topics", topic.trim());
    const answer = await fetch(`/api/v1/group/reset?${asked}`);
    const body = await answer.json();
    tidelog.show(answer.ok ? "" : `${body.code}: ${body.message}`);
    if (answer.ok) show(body);
  });
});
