"use strict";
(() => {
  const all = (query, root) => Array.from((root || document).querySelectorAll(query));
  const by = (id) => document.getElementById(id);
  const make = (name, text, more) => Object.assign(document.createElement(name), { textContent: text || "" }, more || {});
  document.documentElement.classList.add("live");
  const source = by("result");
  const result = source ? JSON.parse(source.textContent) : null;

  // Numbers read as they do elsewhere on the page
  const number = (value, decimals) => {
    if (value === null || value === undefined || !Number.isFinite(value)) return "–";
    const least = 10 ** -decimals;
    if (value !== 0 && Math.abs(value) < least / 2) return (value > 0 ? "< " : "> −") + least.toFixed(decimals);
    const [whole, rest] = Math.abs(value).toFixed(decimals).split(".");
    const text = whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? "." + rest : "");
    return (value < 0 && /[1-9]/.test(text) ? "−" : "") + text;
  };

  // A tip follows the pointer; the arrow keys move it, and a screen reader hears it
  const tip = by("tip"), live = by("live");
  const spotted = (svg) => {
    let spot = svg.querySelector(".spot");
    if (!spot) {
      spot = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      spot.setAttribute("class", "spot");
      spot.setAttribute("r", "6");
      svg.append(spot);
    }
    return spot;
  };
  const show = (svg, at) => {
    const [x, y, text] = at, box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
    const spot = spotted(svg);
    spot.setAttribute("cx", x);
    spot.setAttribute("cy", y);
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(box.left + x * scale + 12, window.innerWidth - tip.offsetWidth - 6);
    const top = box.top + y * scale - tip.offsetHeight - 10;
    tip.style.left = Math.max(left, 4) + "px";
    tip.style.top = (top < 4 ? box.top + y * scale + 14 : top) + "px";
  };
  const hide = (svg) => {
    tip.hidden = true;
    const spot = svg.querySelector(".spot");
    if (spot) spot.remove();
  };
  all("svg.fc").forEach((svg) => {
    const tips = JSON.parse(svg.dataset.tips || "[]");
    if (!tips.length) return;
    let place = -1;
    svg.setAttribute("tabindex", "0");
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      const far = (one) => Math.hypot(one[0] - x, one[1] - y);
      place = tips.reduce((best, one, index) => (far(one) < far(tips[best]) ? index : best), 0);
      if (far(tips[place]) < 60) show(svg, tips[place]); else hide(svg);
    });
    svg.addEventListener("pointerleave", () => hide(svg));
    svg.addEventListener("blur", () => hide(svg));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide(svg);
      if (!step) return;
      event.preventDefault();
      place = Math.min(Math.max(place + step, 0), tips.length - 1);
      show(svg, tips[place]);
      live.textContent = tips[place][2];
    });
  });

  // Downloads
  const give = (name, kind, text) => {
    const link = make("a", "", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const alone = (svg, title) => {
    const copy = svg.cloneNode(true), [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    const named = (name, given) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", name);
      Object.entries(given).forEach(([key, value]) => made.setAttribute(key, value));
      return made;
    };
    const spot = copy.querySelector(".spot");
    if (spot) spot.remove();
    copy.setAttribute("viewBox", `0 -30 ${width} ${height + 30}`);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height + 30);
    const head = named("text", { x: 12, y: -10, class: "title" });
    head.textContent = title;
    const style = named("style", {});
    style.textContent = document.querySelector("style").textContent.split("\n").filter((line) => /^(svg)?\.fc /.test(line) || /^svg\.fc/.test(line)).join("\n");
    copy.prepend(style, named("rect", { class: "bg", y: -30, width, height: 30 }), head);
    return new XMLSerializer().serializeToString(copy);
  };
  const png = (text, name) => {
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", "", { width: image.width * 3, height: image.height * 3 });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      const link = make("a", "", { href: canvas.toDataURL("image/png"), download: name });
      link.click();
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  };
  const quoted = (text) => (/[",\n]/.test(text) ? '"' + text.replace(/"/g, '""') + '"' : text);
  const csv = (table) => all("tr", table).map((row) => all("th,td", row).map((one) => quoted(one.textContent.trim())).join(",")).join("\r\n") + "\r\n";
  const slug = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "figure";

  all("figure.card").forEach((figure) => {
    const svg = figure.querySelector("svg.fc"), numbers = figure.querySelector("details.numbers");
    const title = figure.querySelector(".caption").textContent, name = slug(title);
    const tools = make("div", "", { className: "tools" });
    const button = (text, act) => {
      const made = make("button", text, { type: "button" });
      made.setAttribute("aria-label", `${text}: ${title}`);
      made.addEventListener("click", act);
      tools.append(made);
      return made;
    };
    if (numbers) {
      const swap = button("Table", () => {
        const tabled = !numbers.open;
        numbers.open = tabled;
        figure.querySelector(".drawing").hidden = tabled;
        swap.textContent = tabled ? "Figure" : "Table";
        swap.setAttribute("aria-label", `${swap.textContent}: ${title}`);
      });
    }
    button("SVG", () => give(`${name}.svg`, "image/svg+xml", alone(svg, title)));
    button("PNG", () => png(alone(svg, title), `${name}.png`));
    if (numbers) button("CSV", () => give(`${name}.csv`, "text/csv", csv(numbers.querySelector("table"))));
    figure.append(tools);
  });
  const downloads = by("downloads"), metrics = all("table.metrics");
  const offer = (text, act) => {
    const made = make("button", text, { type: "button" });
    made.addEventListener("click", act);
    downloads.append(made, " ");
    downloads.hidden = false;
  };
  if (source) offer("Download the numbers (JSON)", () => give("result.json", "application/json", source.textContent));
  if (metrics.length) offer("Download the metrics (CSV)", () => give("metrics.csv", "text/csv", metrics.map(csv).join("")));

  // Before and after: each can be hidden
  const toggles = by("toggles");
  if (toggles) {
    ["before", "after"].forEach((name) => {
      const made = make("button", name, { type: "button" });
      made.setAttribute("aria-pressed", "true");
      made.addEventListener("click", () => {
        const shown = made.getAttribute("aria-pressed") !== "true";
        made.setAttribute("aria-pressed", String(shown));
        all(`svg.fc [data-series="${name}"]`).forEach((one) => { one.style.display = shown ? "" : "none"; });
      });
      toggles.append(made);
    });
    toggles.hidden = false;
  }

  // The threshold: the numbers are those of the result
  const slider = by("threshold"), table = result && result.thresholds;
  if (slider && table) {
    const cells = all("#decisions td");
    const move = () => {
      const place = Number(slider.value);
      const at = String(Number(table.threshold[place].toPrecision(4)));
      by("chosen").textContent = at;
      slider.setAttribute("aria-valuetext", at);
      cells.forEach((cell) => {
        const column = table[cell.dataset.side][cell.dataset.metric];
        const [factor, decimals] = cell.dataset.metric === "alert_rate" ? [1000, 1] : [1, 4];
        const [value, low, high] = ["value", "low", "high"].map((end) => (column[end][place] === null ? null : factor * column[end][place]));
        cell.children[0].textContent = number(value, decimals);
        cell.children[1].textContent = low === null || high === null ? "" : `${number(low, decimals)} to ${number(high, decimals)}`;
      });
    };
    slider.addEventListener("input", move);
    document.querySelector(".slider").hidden = false;
    move();
  }
})();
