// The history of a producer: rows come as the log is read. Text of the broker is only ever set as text.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const MOST_ROWS = 1000;
  const table = document.getElementById("history");
  const progress = document.getElementById("progress");
  const state = document.getElementById("read");
  const button = document.getElementById("stop");
  const body = table.tBodies[0];
  const names = {
    batches: "batches", epoch: "new epoch", commit: "committed", abort: "aborted", warning: "warning", damage: "damage",
  };
  const span = (first, last) => (first === last ? `${first}` : `${first}–${last}`);
  const time = (ms) => (ms < 0 ? "" : new Date(ms).toISOString().replace("T", " "));
  let last = -1;
  let rows = 0;

  const add = (row) => {
    const line = body.insertRow();
    const isBatches = row.kind === "batches";
    const cells = [
      names[row.kind] + (row.is_transactional ? ", in a transaction" : ""),
      row.producer_epoch < 0 ? "" : row.producer_epoch,
      isBatches ? span(row.base_sequence, row.last_sequence) : "",
      span(row.base_offset, row.last_offset),
      isBatches ? row.batches : "",
      isBatches ? row.records : "",
      isBatches ? [...new Set([time(row.first_timestamp), time(row.last_timestamp)])].join(" to ") : "",
      row.text,
    ];
    cells.forEach((text, number) => {
      const cell = line.insertCell();
      cell.textContent = text;
      if ([1, 4, 5].includes(number)) cell.className = "number";
    });
    if (row.kind === "damage" || row.kind === "warning") line.className = row.kind === "damage" ? "bad" : "warn";
    if (body.rows.length > MOST_ROWS) body.deleteRow(0);
    rows += 1;
  };
  const take = (piece) => {
    if (piece.next_offset <= last) {  // The stream began again.
      body.replaceChildren();
      rows = 0;
    }
    last = piece.next_offset;
    piece.rows.forEach(add);
    const all = piece.end_offset - piece.start_offset;
    progress.max = Math.max(all, 1);
    progress.value = all ? piece.next_offset - piece.start_offset : 1;
    const left = rows > MOST_ROWS ? `, the last ${MOST_ROWS} are shown` : "";
    state.textContent = `read up to offset ${piece.next_offset} of ${piece.end_offset}: ${rows} rows${left}`;
  };
  const ended = () => {
    button.hidden = true;
    state.textContent = state.textContent.replace("read up to", "complete up to");
  };
  const stop = tidelog.live(table.dataset.path, take, ended);
  button.addEventListener("click", () => {
    stop();
    button.hidden = true;
    state.textContent += ", stopped";
  });
});
