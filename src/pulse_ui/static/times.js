// Shows times in the visitor's zone, and updates relative times. The server does the same from the next page on,
// by the cookie with the zone.
"use strict";

(() => {
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const two = (number) => String(number).padStart(2, "0");

  function span(seconds) {
    const place = UNITS.findIndex(([size]) => seconds >= size);
    const [size, unit] = UNITS[place];
    const number = Math.floor(seconds / size);
    const smaller = UNITS[place + 1];
    const rest = smaller ? Math.floor((seconds % size) / smaller[0]) : 0;
    return rest && number < 10 ? `${number} ${unit} ${rest} ${smaller[1]}` : `${number} ${unit}`;
  }

  function ago(moment) {
    const seconds = (Date.now() - moment.getTime()) / 1000;
    if (Math.abs(seconds) < 1) return "now";
    const words = span(Math.floor(Math.abs(seconds)));
    return seconds > 0 ? `${words} ago` : `in ${words}`;
  }

  const clock = (moment) => `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;

  function stamp(moment) {
    const month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.getMonth()];
    const year = moment.getFullYear() === new Date().getFullYear() ? "" : ` ${moment.getFullYear()}`;
    return `${moment.getDate()} ${month}${year} ${clock(moment)}`;
  }

  const brief = (moment) => (moment.getSeconds() ? stamp(moment) : stamp(moment).slice(0, -3));

  const WORDS = { ago, clock, stamp, brief };

  function show(root) {
    for (const element of root.querySelectorAll("time[data-time]")) {
      const moment = new Date(element.dateTime);
      const words = WORDS[element.dataset.time]?.(moment);
      if (words && element.textContent !== words) element.firstChild ? (element.firstChild.data = words) : (element.textContent = words);
    }
  }

  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.cookie = `pulse_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  document.addEventListener("DOMContentLoaded", () => show(document));
  document.addEventListener("pulse:shown", (event) => show(event.detail.root));
  setInterval(() => { if (!document.hidden) show(document); }, 1000);
})();
