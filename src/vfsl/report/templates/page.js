"use strict";
(function () {
  const tip = document.getElementById("tip");

  function show(mark) {
    const box = mark.getBoundingClientRect();
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const left = box.left + box.width / 2 - tip.offsetWidth / 2;
    tip.style.left = Math.max(8, Math.min(left, room)) + "px";
    const above = box.top - tip.offsetHeight - 8;
    tip.style.top = (above > 4 ? above : box.bottom + 8) + "px";
  }

  function hide() {
    tip.hidden = true;
    for (const mark of document.querySelectorAll(".mark.on")) mark.classList.remove("on");
  }

  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = Array.from(chart.querySelectorAll(".mark"));
    let place = -1;
    for (const mark of marks) {
      // Our own tip takes the place of the browser's, which the keyboard cannot reach.
      const title = mark.querySelector("title");
      mark.dataset.tip = title.textContent;
      title.remove();
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("pointerleave", hide);
    }
    const go = (to) => {
      if (!marks.length) return;
      place = Math.max(0, Math.min(to, marks.length - 1));
      hide();
      marks[place].classList.add("on");
      show(marks[place]);
    };
    chart.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      if (event.key in moves) go(place + moves[event.key]);
      else if (event.key === "Home") go(0);
      else if (event.key === "End") go(marks.length - 1);
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
    chart.addEventListener("focus", () => { if (chart.matches(":focus-visible")) go(Math.max(place, 0)); });
    chart.addEventListener("blur", hide);
  }
  document.addEventListener("scroll", hide, { passive: true });

  function readable(bytes) {
    const units = ["B", "kB", "MB", "GB"];
    let at = 0;
    while (bytes >= 1000 && at < 3) { bytes /= 1000; at += 1; }
    return bytes.toFixed(at ? 1 : 0) + " " + units[at];
  }

  for (const form of document.querySelectorAll("form.filter")) {
    const rows = Array.from(document.querySelectorAll("#" + CSS.escape(form.dataset.for) + " tbody tr"));
    const said = form.querySelector("output");
    const apply = () => {
      const wanted = Object.fromEntries(new FormData(form));
      const words = (wanted.search || "").toLowerCase();
      delete wanted.search;
      let count = 0, bytes = 0;
      for (const row of rows) {
        const fits = Object.entries(wanted).every(([name, value]) => !value || row.dataset[name] === value)
          && (!words || row.textContent.toLowerCase().includes(words));
        row.hidden = !fits;
        if (fits) { count += 1; bytes += Number(row.dataset.bytes || 0); }
      }
      said.textContent = count + " of " + rows.length + " lines" + (bytes ? ", " + readable(bytes) : "");
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("reset", () => setTimeout(apply));
    form.addEventListener("submit", (event) => event.preventDefault());
    apply();
  }

  const links = new Map();
  for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) seen.observe(section);
  }
})();
