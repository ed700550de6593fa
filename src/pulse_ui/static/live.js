// Refreshes an open page: at once after a change event, and every few seconds without one. The user may pause it,
// or choose how often. Shows a banner while the dashboard or pulsed is unavailable, and keeps trying.
"use strict";

(() => {
  const SHORTEST = 1000;
  const STREAM_PAUSE = 15000;
  // pulsed counts topics at most once a second: a change is in the next count, not in this one.
  const SECOND_LOOK = 1500;
  let stream = null;
  let watched = null;
  let refreshing = false;
  let again = false;
  let last = Date.now();
  let good = new Date();
  let timer = null;
  let streamAgainAt = 0;
  let isPaused = false;

  const page = () => document.getElementById("page");
  // Seconds between two refreshes that the user chose; 0: after each change.
  const chosenRate = () => Number(localStorage.getItem("pulse-refresh")) || 0;
  const isBusy = () => document.body.classList.contains("htmx-request") || document.querySelector(".htmx-request") !== null;

  function showBanner(words, link) {
    const banner = document.getElementById("connection-banner");
    if (!banner) return;
    banner.hidden = !words;
    banner.textContent = words || "";
    if (link) {
      const anchor = document.createElement("a");
      anchor.href = link[0];
      anchor.textContent = link[1];
      anchor.setAttribute("hx-boost", "false");
      banner.append(" ", anchor);
    }
    page()?.classList.toggle("stale", Boolean(words));
  }

  const since = () => `This page is from ${good.toLocaleTimeString([], { hour12: false })}.`;

  // While paused, only the number of new rows is updated. `forced` shows them.
  async function refresh({ forced = false } = {}) {
    if (refreshing) { again = true; return; }
    if (document.hidden || isBusy() || !page()?.dataset.live) return;
    const isCounting = isPaused && !forced;
    if (isCounting && !document.querySelector("[data-new-rows]")) return;
    refreshing = true;
    again = false;
    last = Date.now();
    const address = location.pathname + location.search;
    try {
      const response = await fetch(address, { headers: { "Pulse-Live": "1" }, signal: AbortSignal.timeout(15000), redirect: "manual" });
      const text = await response.text();
      if (location.pathname + location.search !== address || isBusy()) return;
      if (response.status === 401 || response.type === "opaqueredirect") return ended();
      const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("page");
      if (response.ok && fresh && isCounting) {
        if (isPaused) window.pulseNewRows(page(), fresh);
      } else if (response.ok && fresh) {
        showBanner("");
        good = new Date();
        window.pulseMorph(page(), fresh, { forced });
        window.htmx?.process(page());
      } else if (response.status === 503) {
        showBanner(`${fresh?.querySelector("h1")?.textContent ?? "pulsed is unavailable"}. ${since()} Retrying.`);
      } else {
        const heading = fresh?.querySelector("h1")?.textContent ?? `The answer was ${response.status}`;
        showBanner(`${heading}: ${fresh?.querySelector(".failure p")?.textContent ?? ""} ${since()}`);
      }
    } catch {
      showBanner(`The dashboard is unavailable. ${since()} Retrying.`);
    } finally {
      refreshing = false;
      last = Date.now();
      if (again) soon();
    }
  }

  function ended() {
    stop();
    clearInterval(timer);
    timer = null;
    showBanner("Your session has ended. This page no longer updates.", [`/login?next=${encodeURIComponent(location.pathname + location.search)}`, "Log in again"]);
  }

  let planned = null;
  function soon() {
    if (planned) return;
    planned = setTimeout(() => { planned = null; refresh(); }, Math.max(0, SHORTEST - (Date.now() - last)));
  }

  let secondLook = null;
  function changed() {
    if (chosenRate()) return;
    soon();
    clearTimeout(secondLook);
    secondLook = setTimeout(soon, SECOND_LOOK);
  }

  function stop() {
    stream?.close();
    stream = watched = null;
  }

  function follow() {
    const live = page()?.dataset.live ?? null;
    if (live === watched && stream) return;
    stop();
    if (!live || document.hidden || Date.now() < streamAgainAt) return;
    watched = live;
    stream = new EventSource(live.startsWith("job:") ? `/events?job=${encodeURIComponent(live.slice(4))}` : "/events");
    stream.addEventListener("changed", changed);
    stream.addEventListener("ended", ended);
    // It reconnects by itself, unless it was refused: then the page polls for a while.
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return;
      streamAgainAt = Date.now() + STREAM_PAUSE;
      stop();
    });
  }

  function tick() {
    if (document.hidden || !page()?.dataset.live) return;
    follow();
    if (Date.now() - last >= (chosenRate() || Number(page().dataset.refresh)) * 1000) soon();
  }

  function pause(wanted) {
    isPaused = wanted;
    showControls();
    if (!isPaused) refresh({ forced: true });
  }

  // They come hidden: without this script a page does not refresh.
  function showControls() {
    const button = document.querySelector("[data-pause]");
    if (!button) return;
    const rate = document.querySelector("[data-refresh-rate]");
    button.hidden = rate.hidden = false;
    button.textContent = isPaused ? "Resume" : "Pause";
    rate.value = String(chosenRate());
    document.querySelector(".live-words").textContent = isPaused ? "Paused" : "Live";
    page().classList.toggle("is-held-still", isPaused);
  }

  // The page of an unavailable server reloads until it answers.
  function tryAgain() {
    if (!document.querySelector("[data-try-again]")) return;
    setTimeout(() => location.reload(), 3000);
  }

  document.addEventListener("DOMContentLoaded", () => {
    follow();
    tryAgain();
    showControls();
    timer = setInterval(tick, 1000);
    // A new page: scroll to its top, and let screen readers announce it.
    let path = location.pathname;
    document.body.addEventListener("htmx:afterSettle", () => {
      good = new Date();
      last = Date.now();
      showBanner("");
      if (location.pathname !== path) {
        path = location.pathname;
        isPaused = false;
        showControls();
        window.scrollTo(0, 0);
        document.getElementById("content")?.focus({ preventScroll: true });
      }
      follow();
      tryAgain();
    });
    document.body.addEventListener("htmx:sendError", () => showBanner(`The dashboard is unavailable. Nothing was changed. ${since()}`));
    document.body.addEventListener("htmx:timeout", () => showBanner("The dashboard did not respond in time. Check before you repeat it."));
  });
  document.addEventListener("pulse:shown", showControls);
  document.addEventListener("pulse:pause", () => pause(!isPaused));
  document.addEventListener("click", (event) => {
    if (event.target.matches?.("[data-pause]")) pause(!isPaused);
    if (!event.target.matches?.("[data-new-rows]")) return;
    window.scrollTo(0, 0);
    refresh({ forced: true });
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-refresh-rate]")) localStorage.setItem("pulse-refresh", event.target.value);
  });
  // Back at the top: the rows follow again.
  document.addEventListener("scroll", () => {
    if (!window.pulseIsScrolled() && document.querySelector('[data-held="scrolled"]')) soon();
  }, { passive: true });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else { follow(); soon(); }
  });
})();
