// Keys: / goes to the search, ? opens the help, p pauses the updates of the page.
"use strict";

(() => {
  const isTyping = (target) => target.matches?.("input, select, textarea, [contenteditable]");

  function openHelp() {
    const help = document.getElementById("help");
    if (help && !help.open) help.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "?") openHelp();
    else if (event.key === "p") document.dispatchEvent(new Event("pulse:pause"));
    else if (event.key === "/") {
      const search = document.getElementById("find-id");
      if (!search) return;
      event.preventDefault();
      search.focus();
      search.select();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-help]")) openHelp();
    // A click beside it, on the backdrop, closes the dialog.
    if (event.target.id === "help") event.target.close();
  });

  // Without this script the button would do nothing, so it comes hidden.
  const show = () => document.querySelectorAll("[data-help]").forEach((button) => (button.hidden = false));
  document.addEventListener("DOMContentLoaded", show);
  document.addEventListener("pulse:shown", show);
})();
