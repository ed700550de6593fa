// Row selection: all of a page, a range with shift, the number of selected rows, and buttons that are enabled only
// if they apply to one of them.
"use strict";

(() => {
  const boxes = (form) => [...form.querySelectorAll("input[type=checkbox][name=id]")];
  let lastTicked = null;

  function show(form) {
    const all = boxes(form);
    const chosen = all.filter((box) => box.checked);
    const master = form.querySelector("[data-select-all]");
    if (master) {
      master.hidden = false;
      master.checked = chosen.length > 0 && chosen.length === all.length;
      master.indeterminate = chosen.length > 0 && chosen.length < all.length;
    }
    for (const element of form.querySelectorAll("[data-selected-count]")) element.textContent = chosen.length ? `${chosen.length} selected` : "None selected";
    // From the row, which is updated: a checked box is not.
    const statuses = new Set(chosen.map((box) => box.closest("[data-status]")?.dataset.status));
    for (const button of form.querySelectorAll("[data-needs-selection]")) {
      const taken = button.dataset.takes?.split(" ");
      button.disabled = chosen.length === 0 || (taken !== undefined && !taken.some((status) => statuses.has(status)));
    }
    form.classList.toggle("selecting", chosen.length > 0);
  }

  const showAll = () => document.querySelectorAll("form[data-selecting]").forEach(show);

  document.addEventListener("change", (event) => {
    const form = event.target.closest?.("form[data-selecting]");
    if (!form) return;
    if (event.target.matches("[data-select-all]")) boxes(form).forEach((box) => (box.checked = event.target.checked));
    show(form);
  });
  // With shift, all rows between this one and the last clicked one get its state.
  document.addEventListener("click", (event) => {
    if (!event.target.matches?.("input[type=checkbox][name=id]")) return;
    const form = event.target.closest("form[data-selecting]");
    if (!form) return;
    const all = boxes(form);
    const [from, to] = [all.indexOf(lastTicked), all.indexOf(event.target)].sort((a, b) => a - b);
    if (event.shiftKey && from >= 0) all.slice(from, to + 1).forEach((box) => (box.checked = event.target.checked));
    lastTicked = event.target;
  });
  document.addEventListener("DOMContentLoaded", showAll);
  document.addEventListener("pulse:shown", showAll);
})();
