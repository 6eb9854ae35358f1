// Updates the open page: the server sends each section that changed. Nothing else runs here.
"use strict";
(() => {
  const main = document.getElementById("main");
  const line = document.getElementById("line");
  if (!main || !main.dataset.live || !window.EventSource) return;
  let stream = null;
  let again = 0;

  const localTimes = (place) => {
    for (const each of place.querySelectorAll("time[datetime]")) {
      const when = new Date(each.dateTime);
      if (isNaN(when)) continue;
      each.title = each.textContent;
      each.textContent = when.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
  };

  // A section with text that the reader is writing is not replaced.
  const inUse = (section) => [...section.querySelectorAll("textarea")].some((each) => each.value !== "");

  const place = (update) => {
    let section = document.getElementById(update.id);
    if (section && (section.dataset.version === update.version || inUse(section))) return;
    if (!section) {
      section = document.createElement("section");
      section.id = update.id;
      section.setAttribute("aria-labelledby", `${update.id}-title`);
      const heading = document.createElement("h2");
      heading.id = `${update.id}-title`;
      heading.textContent = update.title;
      const fresh = document.createElement("div");
      fresh.className = "body";
      section.append(heading, fresh);
    }
    const body = section.querySelector(".body");
    const opened = [...body.querySelectorAll("details")].map((each) => each.open);
    const focused = section.contains(document.activeElement) ? document.activeElement : null;
    const at = focused ? [...body.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused) : -1;
    body.innerHTML = update.html; // from our own server, which escapes all text
    body.querySelectorAll("details").forEach((each, i) => { each.open = opened[i] || false; });
    if (at >= 0) body.querySelectorAll("a, button, summary, [tabindex]")[at]?.focus({ preventScroll: true });
    section.dataset.version = update.version;
    localTimes(section);
    return section;
  };

  const take = (event) => {
    const update = JSON.parse(event.data);
    const status = document.getElementById("status");
    for (const section of update.sections) {
      const fresh = place(section);
      if (fresh && !fresh.isConnected) main.append(fresh);
    }
    let before = null;
    for (const id of update.order) {
      const section = document.getElementById(id);
      if (!section) continue;
      if (before && before.nextElementSibling !== section) before.after(section);
      before = section;
    }
    for (const section of main.querySelectorAll(":scope > section")) {
      if (!update.order.includes(section.id) && !inUse(section)) section.remove();
    }
    if (status.textContent !== update.status) status.textContent = update.status;
    document.getElementById("title").textContent = update.title;
    document.title = update.tab;
  };

  const state = (words, kind) => { line.textContent = words; line.className = `line ${kind}`; };

  const close = () => {
    clearTimeout(again);
    if (stream) { stream.close(); stream = null; }
  };
  const open = () => {
    close();
    stream = new EventSource(main.dataset.live);
    stream.onopen = () => state("live", "good");
    stream.onmessage = take;
    stream.onerror = () => {
      state("not connected: this is the last known state", "bad");
      // After an error response the browser does not connect again.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        again = setTimeout(() => { if (!document.hidden) open(); }, 3000);
      }
    };
    stream.addEventListener("gone", (event) => {
      close();
      state(JSON.parse(event.data).status, "bad");
    });
  };

  // A second click on a button does not send a second decision.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });

  localTimes(document);
  // A browser opens few connections to one server, so hidden pages close theirs.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
})();
