// The pages of records: search, follow, produce. What a record holds is only ever set as text.
"use strict";

addEventListener("DOMContentLoaded", () => {
  const byId = (id) => document.getElementById(id);
  const visible = (text) =>
    text.replace(/[^\P{C}\t\n]|[\u2028\u2029\ufe00-\ufe0f]/gu, (found) => {
      const code = found.codePointAt(0);
      const [mark, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
      return `\\${mark}${code.toString(16).padStart(digits, "0")}`;
    });

  const produce = byId("produce");
  if (produce) {
    const tombstone = byId("tombstone");
    const value = produce.elements.value;
    tombstone.addEventListener("change", () => { value.disabled = tombstone.checked; });
    produce.addEventListener("answered", (event) => {
      const { partition, offset } = event.detail;
      const link = document.createElement("a");
      link.href = `${produce.dataset.records}${partition}/records/${offset}`;
      link.textContent = `partition ${partition}, offset ${offset}`;
      byId("produced").replaceChildren("Stored durably: ", link);
      byId("produced").hidden = false;
    });
  }

  const reading = byId("reading");
  if (!reading) return;
  const onePartition = reading.dataset.partition;
  const rows = byId("rows");
  const progress = byId("progress");
  const say = (text) => { progress.querySelector("[role=status]").textContent = text; };
  const shownIn = (cell, value) => {
    const isFull = value !== null && value.size_bytes > 0;
    const part = document.createElement(isFull ? "bdi" : "span");
    part.className = isFull ? "mono value" : "faint";
    part.textContent = isFull ? visible(value.text) : value ? "empty" : "none";
    cell.append(part);
    const note = value && [
      value.is_truncated ? `… of ${value.size_bytes} B` : "", value.schema_id === null ? "" : `schema ${value.schema_id}`,
      value.format === "bytes" ? "bytes" : "", value.problem].filter(Boolean).join(", ");
    if (note) cell.append(Object.assign(document.createElement("span"), { className: "faint", textContent: ` ${visible(note)}` }));
  };
  const rowOf = (partition) => (record) => {
    const row = byId("row").content.firstElementChild.cloneNode(true);
    const [head, time, key, value, headers] = row.children;
    const link = head.firstElementChild;
    link.textContent = onePartition === undefined ? `${partition}: ${record.offset}` : record.offset;
    link.href = `${reading.dataset.records}${partition}/records/${record.offset}`;
    time.textContent = record.timestamp < 0 ? "none" : new Date(record.timestamp).toISOString().replace("T", " ");
    if (record.problem) value.textContent = visible(record.problem);
    else {
      shownIn(key, record.key);
      shownIn(value, record.value);
      headers.textContent = record.headers.slice(0, 5).map((each) => visible(`${each.name}=${each.value ? each.value.text : ""}`)).join("\n");
    }
    return row;
  };

  const most = 500;
  let stop = null;
  const running = (isRunning) => {
    byId("stop").hidden = !isRunning;
    for (const button of [byId("search"), byId("follow")]) if (button) button.hidden = isRunning;
  };
  let isAnswered = false;
  const end = () => { if (stop) stop(); stop = null; running(false); if (!isAnswered) progress.hidden = true; };
  const begin = (kind, take) => {
    const query = new URLSearchParams([...new FormData(reading)].filter(([, text]) => text !== ""));
    if (kind === "live") for (const name of ["offset", "time", "limit"]) query.delete(name);
    rows.replaceChildren();
    tidelog.show("");
    isAnswered = progress.hidden = false;
    progress.querySelector("progress").hidden = kind === "live";
    running(true);
    stop = tidelog.live(`${reading.dataset.apiPath}/${kind}?${query}`, (message) => { isAnswered = true; take(message); }, end);
  };
  const search = () => {
    say("searching");
    begin("search", (message) => {
      const bar = progress.querySelector("progress");
      const { partition, begin_offset: from, offset, end_offset: end } = message;
      const share = end > from ? (offset - from) / (end - from) : 1;
      bar.value = onePartition === undefined ? (partition + share) / message.partitions : share;
      // The first message of a search, which begins again when the page was hidden meanwhile.
      if (message.found === message.rows.length) rows.replaceChildren();
      rows.append(...message.rows.map(rowOf(partition)));
      const state = { searching: "searching", done: "all searched", full: "as many as wanted", replaced: "ended by another search" };
      const isDone = message.state === "done";
      const where = onePartition !== undefined ? ` up to offset ${offset} of ${end}`
        : (isDone ? ` in ${message.partitions} partitions` : ` up to offset ${offset} of ${end} in partition ${partition}, the ${partition + 1}. of ${message.partitions}`) +
        (message.not_served ? `; ${message.not_served} are not served` : "");
      say(`${state[message.state]}: ${message.found} found${where}`);
    });
  };
  if (onePartition === undefined)
    reading.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  else byId("search").addEventListener("click", search);
  byId("follow")?.addEventListener("click", () => {
    let leftOut = 0;
    let looked = null;
    say("waiting for records");
    begin("live", (message) => {
      leftOut += message.offset - (looked ?? message.offset);
      looked = message.end_offset;
      rows.prepend(...message.rows.map(rowOf(onePartition)).reverse());
      while (rows.children.length > most) rows.lastElementChild.remove();
      say(`following, up to offset ${looked}${leftOut ? `; ${leftOut} left out: they came too fast, or while this page was hidden` : ""}`);
    });
  });
  byId("stop").addEventListener("click", end);
  running(false);
});
