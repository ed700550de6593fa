// Morphs the shown page into the fetched one, and leaves unchanged nodes alone.
//
// An automatic refresh keeps the state of the user: scroll, focus, text selection, open details, selected rows
// and typed text. A page requested by a link or a form is shown as it was sent.
//
// A node is kept if its counterpart has the same id or, without ids, the same kind and position.
"use strict";

(() => {
  // The attribute: the property `id` of a form with a field named "id" is that field.
  const key = (node) => (node.nodeType === Node.ELEMENT_NODE && node.getAttribute("id")) || null;

  const isSameKind = (old, fresh) =>
    old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && key(old) === key(fresh);

  let isAsked = false;
  let isForced = false;

  // The value that a user has changed is kept until the form is sent or the page is left.
  const isTouched = (control) => {
    if (isAsked) return false;
    if (control === document.activeElement) return true;
    if (control.type === "checkbox" || control.type === "radio") return control.checked !== control.defaultChecked;
    if (control.tagName === "SELECT") return control.selectedIndex !== defaultIndex(control);
    return "defaultValue" in control && control.value !== control.defaultValue;
  };

  // Without a selected option the first one is shown.
  const defaultIndex = (select) => Math.max(0, [...select.options].findIndex((option) => option.defaultSelected));

  const isControl = (node) => ["INPUT", "TEXTAREA", "SELECT"].includes(node.tagName);

  // More than a nudge.
  window.pulseIsScrolled = () => window.scrollY > 48;

  // Why the rows of a list stay where they are: some are selected, or the reader has scrolled into them.
  const holdOf = (node) => {
    if (isAsked || isForced || !node.hasAttribute?.("data-rows")) return "";
    if ([...node.querySelectorAll("input[type=checkbox]")].some((box) => box.checked)) return "selected";
    return window.pulseIsScrolled() ? "scrolled" : "";
  };

  function morphAttributes(old, fresh) {
    const opens = !isAsked && (old.tagName === "DETAILS" || old.tagName === "DIALOG");
    for (const { name, value } of fresh.attributes) {
      if (opens && name === "open") continue;
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (opens && name === "open") continue;
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    }
  }

  function morphControl(old, fresh) {
    if (isTouched(old)) return;
    morphAttributes(old, fresh);
    if (old.tagName === "TEXTAREA") old.value = old.defaultValue = fresh.defaultValue;
    else if (old.tagName === "SELECT") {
      morphChildren(old, fresh);
      old.selectedIndex = defaultIndex(old);
    } else if (old.type === "checkbox" || old.type === "radio") old.checked = fresh.hasAttribute("checked");
    else if (old.value !== (fresh.getAttribute("value") ?? "")) old.value = fresh.getAttribute("value") ?? "";
  }

  function morphNode(old, fresh) {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    if (isControl(old)) return morphControl(old, fresh);
    morphAttributes(old, fresh);
    // Messages stay until the next page.
    if (!isAsked && old.hasAttribute("data-keep") && !fresh.firstElementChild) return;
    morphChildren(old, fresh);
  }

  // While rows are held, none is added or removed: the existing ones are updated, and the new ones counted.
  function morphHeldRows(old, fresh, hold) {
    const byId = new Map([...fresh.children].filter(key).map((row) => [row.id, row]));
    for (const row of old.children) if (byId.has(row.id)) morphNode(row, byId.get(row.id));
    old.setAttribute("data-held", hold);
    showNewRows(old, fresh);
  }

  // "12 new": the rows above the first one that is shown. A whole page of new rows may be the last of many.
  function showNewRows(old, fresh) {
    const button = document.querySelector("[data-new-rows]");
    if (!button) return;
    const rows = [...fresh.children];
    const first = rows.findIndex((row) => old.querySelector(`#${CSS.escape(row.id)}`));
    const count = first < 0 ? rows.length : first;
    button.hidden = count === 0;
    button.textContent = first < 0 ? `${count}+ new` : `${count} new`;
  }

  function morphChildren(old, fresh) {
    const hold = holdOf(old);
    if (hold) return morphHeldRows(old, fresh, hold);
    if (old.hasAttribute?.("data-held")) old.removeAttribute("data-held");
    const wanted = new Set([...fresh.childNodes].map(key).filter(Boolean));
    const keyed = new Map([...old.childNodes].filter((node) => wanted.has(key(node))).map((node) => [key(node), node]));
    let place = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const id = key(next);
      let match = id ? keyed.get(id) : null;
      if (match && match.nodeName !== next.nodeName) match = null;
      if (!match && !id) {
        // Skip nodes that are matched by their id, then take the next one if it is of the same kind.
        let candidate = place;
        while (candidate && keyed.has(key(candidate))) candidate = candidate.nextSibling;
        if (candidate && isSameKind(candidate, next)) match = candidate;
      }
      if (match) {
        if (match !== place) old.insertBefore(match, place);
        morphNode(match, next);
        place = match.nextSibling;
      } else {
        old.insertBefore(document.importNode(next, true), place);
      }
    }
    while (place) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
  }

  // `asked`: by a link or a form. `forced`: show new rows even if some are held.
  window.pulseMorph = (target, fresh, { asked = false, forced = false } = {}) => {
    [isAsked, isForced] = [asked, forced];
    morphNode(target, fresh);
    [isAsked, isForced] = [false, false];
    document.dispatchEvent(new CustomEvent("pulse:shown", { detail: { root: target } }));
  };

  window.pulseNewRows = (page, fresh) => {
    const [rows, freshRows] = [page, fresh].map((root) => root.querySelector("[data-rows]"));
    if (rows && freshRows) showNewRows(rows, freshRows);
  };

  document.addEventListener("DOMContentLoaded", () => {
    window.htmx?.defineExtension("morph", {
      isInlineSwap: (style) => style === "morph",
      handleSwap: (style, target, fragment) => {
        if (style !== "morph") return false;
        const fresh = [...fragment.childNodes].find((node) => node.nodeType === Node.ELEMENT_NODE);
        if (!fresh) return [];
        if (fresh.id === target.id) window.pulseMorph(target, fresh, { asked: true });
        else {
          target.replaceChildren(...fragment.childNodes);
          document.dispatchEvent(new CustomEvent("pulse:shown", { detail: { root: target } }));
        }
        return [target];
      },
    });
  });
})();
