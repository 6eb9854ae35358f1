// Follows the page that is open: the server sends each section again when it changes. Nothing else runs here.
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

  // What somebody is writing is not taken away from under their hands.
  const inUse = (section) => [...section.querySelectorAll("textarea")].some((each) => each.value !== "");

  const place = (told) => {
    let section = document.getElementById(told.id);
    if (section && (section.dataset.version === told.version || inUse(section))) return;
    if (!section) {
      section = document.createElement("section");
      section.id = told.id;
      section.setAttribute("aria-labelledby", `${told.id}-title`);
      const heading = document.createElement("h2");
      heading.id = `${told.id}-title`;
      heading.textContent = told.title;
      const fresh = document.createElement("div");
      fresh.className = "body";
      section.append(heading, fresh);
    }
    const body = section.querySelector(".body");
    const opened = [...body.querySelectorAll("details")].map((each) => each.open);
    const focused = section.contains(document.activeElement) ? document.activeElement : null;
    const at = focused ? [...body.querySelectorAll("a, button, summary, [tabindex]")].indexOf(focused) : -1;
    body.innerHTML = told.html; // from our own server, which escapes all that is not its own
    body.querySelectorAll("details").forEach((each, i) => { each.open = opened[i] || false; });
    if (at >= 0) body.querySelectorAll("a, button, summary, [tabindex]")[at]?.focus({ preventScroll: true });
    section.dataset.version = told.version;
    localTimes(section);
    return section;
  };

  const take = (event) => {
    const told = JSON.parse(event.data);
    const said = document.getElementById("said");
    for (const section of told.sections) {
      const fresh = place(section);
      if (fresh && !fresh.isConnected) main.append(fresh);
    }
    let before = null;
    for (const id of told.order) {
      const section = document.getElementById(id);
      if (!section) continue;
      if (before && before.nextElementSibling !== section) before.after(section);
      before = section;
    }
    for (const section of main.querySelectorAll(":scope > section")) {
      if (!told.order.includes(section.id) && !inUse(section)) section.remove();
    }
    if (said.textContent !== told.said) said.textContent = told.said;
    document.getElementById("title").textContent = told.title;
    document.title = told.tab;
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
      state("not connected: this is how it stood", "bad");
      // After an answer that is an error the browser does not try again by itself.
      if (stream && stream.readyState === EventSource.CLOSED) {
        close();
        again = setTimeout(() => { if (!document.hidden) open(); }, 3000);
      }
    };
    stream.addEventListener("gone", (event) => {
      close();
      state(JSON.parse(event.data).said, "bad");
    });
  };

  // A second click on a button is not a second decision.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });

  localTimes(document);
  // A browser opens few connections to one server: pages that nobody sees give theirs up.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
})();
