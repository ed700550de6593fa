// Small forms behind a button: opening focuses the first field; Escape or a click outside closes it.
"use strict";

(() => {
  const open = () => document.querySelectorAll("details.ask[open]");

  document.addEventListener(
    "toggle",
    (event) => {
      const ask = event.target;
      if (!ask.matches?.("details.ask") || !ask.open) return;
      open().forEach((other) => { if (other !== ask) other.open = false; });
      ask.querySelector(".panel :is(input:not([type=hidden]), select, textarea, button, a)")?.focus();
    },
    true,
  );
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    open().forEach((ask) => {
      ask.open = false;
      ask.querySelector("summary").focus();
    });
  });
  document.addEventListener("click", (event) => open().forEach((ask) => { if (!ask.contains(event.target)) ask.open = false; }));
})();
