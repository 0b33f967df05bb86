// What all pages share: parts that refresh themselves, forms that ask the API, live values. No text of the broker
// is ever read as HTML: only pages of the broker are, which escape it.
"use strict";

const tidelog = (() => {
  const show = (text) => {
    const message = document.getElementById("message");
    message.textContent = text;
    message.hidden = !text;
  };

  // <section id="x" data-refresh="5">: fetched again every 5 seconds, unless nobody sees it or somebody uses it.
  const refresh = (part) =>
    htmx.ajax("GET", part.dataset.from || location.pathname + location.search,
      { target: part, select: "#" + CSS.escape(part.id), swap: "outerHTML" });
  const isUsed = (part) => part.contains(document.activeElement) || part.querySelector("details[open]") !== null;
  const unasked = new Set();  // Parts whose refresh nobody asked for: whoever begins to use one meanwhile keeps it.
  let seconds = 0;
  setInterval(() => {
    seconds += 1;
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-refresh]"))
      if (seconds % Number(part.dataset.refresh) === 0 && !isUsed(part) && !unasked.has(part.id)) {
        unasked.add(part.id);
        refresh(part).catch(() => {}).finally(() => unasked.delete(part.id));
      }
  }, 1000);

  // On a narrow page each row is a card, whose cells are labelled by the heading of their column.
  const label = () => {
    for (const table of document.querySelectorAll("table")) {
      const names = [...table.querySelectorAll("thead th")].map((each) => each.textContent.trim());
      for (const row of table.tBodies[0]?.rows ?? [])
        if (row.cells.length === names.length)
          [...row.cells].forEach((cell, at) => { if (names[at]) cell.dataset.label = names[at]; });
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    label();
    new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
  });

  // <form data-api="POST /api/v1/topics" data-then="/console/topics">: sends its fields as a JSON object;
  // <textarea data-kind="pairs"> is an object of lines name=value.
  const valuesOf = (form) => {
    const values = {};
    for (const [name, text] of new FormData(form)) {
      const field = form.elements[name];
      if (text === "" && field.dataset && field.dataset.empty !== "keep") continue;
      const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
      const pairs = lines.map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]);
      values[name] = { pairs: Object.fromEntries(pairs), headers: pairs, list: lines }[field.dataset?.kind] ?? text;
    }
    return values;
  };
  const send = async (method, path, values) => {
    const answer = await fetch(path, {
      method, body: JSON.stringify(values), headers: { "Content-Type": "application/json" },
    });
    const body = await answer.json();
    if (!answer.ok) throw new Error(`${body.code}: ${body.message}`);
    return body;
  };
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.dataset.api) return;
    event.preventDefault();
    const [method, path] = form.dataset.api.split(" ");
    const buttons = form.querySelectorAll("button");
    buttons.forEach((button) => { button.disabled = true; });
    try {
      const body = await send(method, path, valuesOf(form));
      show("");
      form.dispatchEvent(new CustomEvent("answered", { bubbles: true, detail: body }));
      if (form.dataset.then) location.assign(form.dataset.then);
      else if (form.dataset.done) {
        show(form.dataset.done);
        document.querySelectorAll("[data-refresh]").forEach(refresh);
      }
    } catch (error) {
      show(error.message);
    } finally {
      buttons.forEach((button) => { button.disabled = false; });
    }
  });

  // <input data-confirm="orders">: the form's button.danger works once the name is typed.
  const confirmed = () => {
    for (const input of document.querySelectorAll("input[data-confirm]"))
      input.form.querySelector("button.danger").disabled = input.value !== input.dataset.confirm;
  };
  document.addEventListener("input", confirmed);
  document.addEventListener("DOMContentLoaded", confirmed);
  document.addEventListener("htmx:afterSwap", confirmed);

  // data-favourite="orders": a star that keeps the name in this browser; #favourites links to the topics kept.
  const KEPT = "tidelog.favourites";
  const kept = () => { try { return JSON.parse(localStorage.getItem(KEPT)) ?? []; } catch { return []; } };
  const star = () => {
    const names = kept();
    for (const button of document.querySelectorAll("[data-favourite]")) {
      const isKept = names.includes(button.dataset.favourite);
      button.setAttribute("aria-pressed", isKept);
      button.textContent = isKept ? "★" : "☆";
    }
    const place = document.getElementById("favourites");
    if (!place) return;
    place.hidden = !names.length;
    place.firstElementChild.replaceChildren(...names.map((name) => {
      const link = Object.assign(document.createElement("a"), { href: `/console/topics/${encodeURIComponent(name)}`, textContent: `★ ${name}` });
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
  };
  document.addEventListener("DOMContentLoaded", star);
  document.addEventListener("htmx:afterSwap", star);
  document.addEventListener("click", (event) => {
    const name = event.target.closest("[data-favourite]")?.dataset.favourite;
    if (name === undefined) return;
    const names = kept();
    localStorage.setItem(KEPT, JSON.stringify(names.includes(name) ? names.filter((each) => each !== name) : [...names, name].sort()));
    star();
  });

  // data-key="n": this key clicks a link or a button, or goes to a field. j and k go from row to row, ? lists all.
  const FIXED = [["j", "next row"], ["k", "previous row"], ["Enter", "open the row"], ["/", "search everything"], ["Esc", "leave a field"]];
  const keyed = (key) => document.querySelector(`[data-key="${CSS.escape(key)}"]:not([hidden])`);
  const step = (by) => {
    const links = [...document.querySelectorAll("tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
    const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
  };
  const list = () => {
    const dialog = document.getElementById("keys");
    const found = [...document.querySelectorAll("[data-key]:not([hidden])")].filter((each) => each.tagName !== "INPUT").map((each) => [each.dataset.key, each.textContent.trim()]);
    dialog.querySelector("dl").replaceChildren(...[...FIXED, ...found].flatMap(([key, text]) => {
      const term = document.createElement("dt");
      term.append(Object.assign(document.createElement("kbd"), { textContent: key }));
      return [term, Object.assign(document.createElement("dd"), { textContent: text })];
    }));
    dialog.showModal();
  };
  document.addEventListener("keydown", (event) => {
    const place = event.target;
    if (event.key === "Escape" && place.matches("input, textarea, select")) place.blur();
    // A closed dialog keeps the focus until the next frame: whether one is open decides, not where the key goes.
    if (event.ctrlKey || event.altKey || event.metaKey || place.matches("input, textarea, select") || document.querySelector("dialog[open]")) return;
    const found = keyed(event.key);
    if (found?.tagName === "INPUT") found.focus();
    else if (found) found.click();
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else return;
    event.preventDefault();
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.key === "?") list();
    if (!button?.dataset.copy) return;
    const part = document.getElementById(button.dataset.copy);
    getSelection().selectAllChildren(part);
    try {
      await navigator.clipboard.writeText(part.textContent);
      show("Copied.");
    } catch { show("Selected: copy it with Ctrl+C."); }  // Without TLS a browser lets no page copy.
  });

  // live("/api/v1/events/…", (value) => …): follows an event stream while the page is seen. Returns what ends it.
  const live = (path, take, ended = () => {}) => {
    let stream = null;
    const open = () => {
      stream = new EventSource(path);
      stream.onmessage = (event) => take(JSON.parse(event.data));
      stream.addEventListener("end", () => { stop(); ended(); });
      stream.addEventListener("refused", (event) => { stop(); ended(); show(JSON.parse(event.data).message); });
      stream.onerror = async () => {
        // A browser connects again by itself, but not after an answer with an error, and that it does not show.
        if (stream?.readyState !== EventSource.CLOSED) return;
        stop();
        ended();
        const answer = await fetch(path);
        if (answer.ok) await answer.body.cancel();
        else show((await answer.json()).message);
      };
    };
    const close = () => { if (stream) stream.close(); stream = null; };
    const look = () => { if (document.hidden) close(); else if (!stream) open(); };
    const stop = () => { document.removeEventListener("visibilitychange", look); close(); };
    document.addEventListener("visibilitychange", look);
    look();
    return stop;
  };

  // Nothing but pages is put into a page.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const type = event.detail.xhr.getResponseHeader("Content-Type") || "";
    const part = event.detail.target;
    const isUnwanted = unasked.has(part.id) && isUsed(part);
    if (isUnwanted || !type.startsWith("text/html")) event.detail.shouldSwap = false;
  });

  return { show, refresh, send, live };
})();
