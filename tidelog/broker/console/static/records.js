// The messages of a topic: live, searched, produced. What a record holds is only ever set as text.
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
    byId("tombstone").addEventListener("change", (event) => { produce.elements.value.disabled = event.target.checked; });
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
  const MOST = 500;
  const [search, live, stop, progress, bar] = [byId("search"), byId("live"), byId("stop"), byId("progress"), document.querySelector("#progress progress")];
  const rows = byId("rows");
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
  const { here } = reading.dataset;
  const rowOf = (record) => {
    const row = byId("row").content.firstElementChild.cloneNode(true);
    const [head, partition, time, key, value, headers, from] = row.children;
    const [batch, producer] = from.children;
    const place = `${here}/partitions/${record.partition}`;
    head.firstElementChild.textContent = record.offset;
    head.firstElementChild.href = `${place}/records/${record.offset}`;
    partition.textContent = record.partition;
    time.textContent = record.timestamp < 0 ? "none" : new Date(record.timestamp).toISOString().replace("T", " ");
    batch.href = `${place}/batches?offset=${record.offset}`;
    if (record.producer_id < 0) producer.remove();
    else {
      producer.textContent = `producer ${record.producer_id}`;
      producer.href = `${here.replace("/topics/", "/producers/")}/${record.partition}/${record.producer_id}`;
    }
    if (record.problem) value.textContent = visible(record.problem);
    else {
      shownIn(key, record.key);
      shownIn(value, record.value);
      headers.append(...record.headers.slice(0, 5).map((each) =>
        Object.assign(document.createElement("div"), { className: "mono", textContent: visible(`${each.name}=${each.value ? each.value.text : ""}`) })));
    }
    return row;
  };

  let end = () => {};
  const begin = (kind, take, ended) => {
    end();
    const query = new URLSearchParams([...new FormData(reading)].filter(([, text]) => text !== ""));
    if (kind === "live") for (const name of ["offset", "time", "limit"]) query.delete(name);
    tidelog.show("");
    say(kind === "live" ? "waiting for records" : "searching");
    progress.hidden = false;
    bar.hidden = kind === "live";
    search.hidden = kind === "search";
    stop.hidden = kind === "live";
    let isAnswered = false;
    const over = () => { ended(); search.hidden = false; stop.hidden = true; end = () => {}; if (!isAnswered) progress.hidden = true; };
    const close = tidelog.live(`${reading.dataset.apiPath}/${kind}?${query}`, (message) => { isAnswered = true; take(message); }, over);
    end = () => { close(); over(); };
  };
  search.addEventListener("click", () => {
    rows.replaceChildren();
    byId("none").hidden = true;
    begin("search", (message) => {
      const { partition, begin_offset: from, offset, end_offset: last, partitions, not_served: left } = message;
      bar.value = (partition + (last > from ? (offset - from) / (last - from) : 1)) / partitions;
      // The first message of a search, which begins again when the page was hidden meanwhile.
      if (message.found === message.rows.length) rows.replaceChildren();
      rows.append(...message.rows.map(rowOf));
      const state = { searching: "searching", done: "all searched", full: "as many as wanted", replaced: "ended by another search" };
      const where = message.state === "done" ? ` in ${partitions} partition${partitions > 1 ? "s" : ""}` : ` up to offset ${offset} of ${last} in partition ${partition}`;
      say(`${state[message.state]}: ${message.found} found${where}${left ? `; ${left} are not served` : ""}`);
    }, () => {});
  });
  stop.addEventListener("click", () => end());
  const follow = () => {
    let [come, leftOut] = [0, 0];
    live.textContent = "Pause";
    begin("live", (message) => {
      come += message.rows.length;
      leftOut += message.left_out;
      rows.prepend(...message.rows.map(rowOf).reverse());
      while (rows.children.length > MOST) rows.lastElementChild.remove();
      if (rows.children.length) byId("none").hidden = true;
      say(`live: ${come} new${leftOut ? `; ${leftOut} left out: they came too fast` : ""}`);
    }, () => { live.textContent = "Live"; });
  };
  live.addEventListener("click", () => { if (live.textContent === "Pause") { end(); say("paused"); progress.hidden = false; } else follow(); });
  search.hidden = live.hidden = false;
  if ("live" in reading.dataset) follow();
  else live.textContent = "Live";
});
