// The chart of a group's lag, from the numbers in the page as it refreshes, and the preview of a reset.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const MOST_POINTS = 360;
  const MOST_SERIES = 8;
  const chart = document.getElementById("chart");
  if (chart) {
    const section = () => document.getElementById("group");
    const read = () => new Map([...section().querySelectorAll("[data-series]")].map((cell) => [cell.dataset.series, Number(cell.dataset.value)]));
    const now = () => Number(section().dataset.nowMs) / 1000;
    const first = read();
    const [total, ...partitions] = first.keys();
    partitions.sort((one, other) => first.get(other) - first.get(one));
    const names = [total, ...partitions.slice(0, MOST_SERIES)];
    const data = [[], ...names.map(() => [])];
    let plot = null;
    const draw = () => {
      plot?.destroy();
      // uPlot would give a single point a range of years.
      plot = charts.draw(chart, { names, data, write: charts.number(""), height: 220, range: () => [Math.min(data[0][0] ?? now(), now() - 60), now()] });
    };
    const sample = () => {
      if (data[0].at(-1) === now()) return;
      const found = read();
      data[0].push(now());
      names.forEach((name, number) => data[number + 1].push(found.get(name) ?? null));
      if (data[0].length > MOST_POINTS) data.forEach((values) => values.shift());
      draw();
    };
    sample();
    document.addEventListener("htmx:afterSettle", sample);
    addEventListener("resize", draw);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  }

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
  for (const field of [to, number, time, form.elements.topics, form.elements.partitions]) field.addEventListener("input", choose);
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
    for (const name of ["topics", "partitions"])
      for (const each of form.elements[name].value.split("\n")) if (each.trim()) asked.append(name, each.trim());
    const answer = await fetch(`/api/v1/group/reset?${asked}`);
    const body = await answer.json();
    tidelog.show(answer.ok ? "" : `${body.code}: ${body.message}`);
    if (answer.ok) show(body);
  });
});
