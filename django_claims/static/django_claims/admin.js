/* Keeps the claims pages fresh. Without it they work too: there is a link. */
"use strict";
(function () {
  const live = document.getElementById("claims-live");
  const claim = document.getElementById("claims-claim");
  const followed = document.getElementById("claims-followed");
  if (!live || !(claim || followed)) {
    return;
  }
  const every = document.getElementById("claims-every");
  const trouble = live.querySelector(".claims-trouble");
  const rows = document.getElementById("claims-rows");
  const all = document.getElementById("claims-all");
  const FOLLOW_SECONDS = 1;
  const AIM_SECONDS = 1.5;
  let tookSeconds = 0;
  let movedAt = -Infinity;
  const STORED = "django-claims-every";
  const shown = new Map();
  const types = window.trustedTypes;
  /* What the server has written and escaped; its name can be allowed by a policy of trusted types. */
  const policy = types ? types.createPolicy("django-claims", { createHTML: (text) => text }) : null;
  let timer = null;
  let asking = false;

  every.hidden = false;
  live.querySelector("label").hidden = false;
  try {
    const kept = window.localStorage.getItem(STORED);
    if (kept && every.querySelector('option[value="' + Number(kept) + '"]')) {
      every.value = String(Number(kept));
    }
  } catch (error) {
    // A browser may forbid it; then nothing is remembered.
  }

  function follows() {
    return (followed || claim).hasAttribute("data-follows");
  }

  /* No row may move away under a hand that is about to press its button, or copies a word. */
  function aims() {
    const words = window.getSelection();
    const copies = words !== null && !words.isCollapsed && (rows || claim || live).contains(words.anchorNode);
    return copies || (rows !== null && performance.now() - movedAt < AIM_SECONDS * 1000);
  }

  function plan() {
    window.clearTimeout(timer);
    const wanted = follows() ? Math.max(FOLLOW_SECONDS, 5 * tookSeconds) : Number(every.value);
    const seconds = aims() && wanted > 0 ? AIM_SECONDS : wanted;
    if (seconds > 0 && !document.hidden) {
      timer = window.setTimeout(refresh, seconds * 1000);
    }
  }

  /* Nothing is written again that stands there already: it would be read out again. */
  function put(id, part, text) {
    const element = document.getElementById(id);
    if (element && shown.get(id) !== text && element[part] !== text) {
      element[part] = part === "innerHTML" && policy ? policy.createHTML(text) : text;
    }
    shown.set(id, text);
  }

  /* Where the reader is: the focused button or box of a row, and what is selected. */
  function place() {
    const row = document.activeElement && document.activeElement.closest("#claims-rows tr");
    const inside = row ? Array.from(row.querySelectorAll("a, button, input")) : [];
    return {
      key: row ? row.dataset.key : null,
      index: inside.filter((one) => one.type !== "hidden").indexOf(document.activeElement),
      selected: Array.from(rows.querySelectorAll('input[name="run"]:checked'), (box) => box.value),
    };
  }

  function restore(before) {
    for (const box of rows.querySelectorAll('input[name="run"]')) {
      box.checked = before.selected.includes(box.value);
    }
    for (const row of rows.children) {
      if (before.key !== null && row.dataset.key === before.key) {
        const inside = Array.from(row.querySelectorAll("a, button, input")).filter((one) => one.type !== "hidden");
        const wanted = inside[before.index] || inside[0];
        if (wanted) {
          wanted.focus({ preventScroll: true });
        }
      }
    }
  }

  function showList(said) {
    if (rows) {
      const before = place();
      put("claims-rows", "innerHTML", said.rows);
      restore(before);
    } else if (said.leases.length > 0) {
      window.location.reload(); // there was no table to fill
      return;
    }
    put("claims-summary", "textContent", said.summary);
    put("claims-notices", "innerHTML", said.notices);
    put("claims-followed", "innerHTML", said.followed);
    put("claims-empty", "innerHTML", said.empty);
  }

  async function refresh() {
    if (asking || document.hidden) {
      return;
    }
    if (aims()) {
      plan();
      return;
    }
    asking = true;
    const began = performance.now();
    try {
      const query = claim ? "?claim=" + encodeURIComponent(claim.dataset.claim) : window.location.search;
      const answer = await fetch(live.dataset.rows + query, { headers: { Accept: "application/json" } });
      if (answer.redirected || answer.status === 403) {
        trouble.textContent = live.dataset.login;
        every.value = "0";
        (followed || claim).removeAttribute("data-follows");
        return;
      }
      if (!answer.ok) {
        throw new Error(String(answer.status));
      }
      const said = await answer.json();
      if (claim) {
        put("claims-claim", "innerHTML", said.html);
      } else {
        showList(said);
      }
      put("claims-read", "textContent", said.read);
      put("claims-said", "textContent", said.said); // to be heard: changes with the state, not each second
      (followed || claim).toggleAttribute("data-follows", said.follows);
      trouble.textContent = "";
    } catch (error) {
      trouble.textContent = live.dataset.failed;
    } finally {
      asking = false;
      tookSeconds = (performance.now() - began) / 1000;
      plan();
    }
  }

  if (rows) {
    for (const kind of ["pointermove", "pointerdown"]) {
      rows.addEventListener(kind, function () {
        movedAt = performance.now();
      });
    }
  }
  every.addEventListener("change", function () {
    try {
      window.localStorage.setItem(STORED, every.value);
    } catch (error) {
      // As above.
    }
    plan();
  });
  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      window.clearTimeout(timer);
    } else if (follows() || Number(every.value) > 0) {
      refresh();
    }
  });
  if (all && rows) {
    all.hidden = false;
    all.addEventListener("change", function () {
      for (const box of rows.querySelectorAll('input[name="run"]')) {
        box.checked = all.checked;
      }
    });
  }
  plan();
})();
