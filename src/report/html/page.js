"use strict";
(() => {
  const get = (id) => document.getElementById(id);
  const make = (name, type, text) => {
    const element = document.createElement(name);
    if (type) element.className = type;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // The theme: what the system says, until somebody says otherwise.
  const themes = ["auto", "light", "dark"];
  const keep = (theme) => { try { localStorage.setItem("dcctl-theme", theme); } catch { /* a page may not keep anything */ } };
  const kept = () => { try { return localStorage.getItem("dcctl-theme"); } catch { return null; } };
  const dress = (theme) => {
    document.documentElement.dataset.theme = theme;
    get("theme").textContent = `Theme: ${theme}`;
  };
  dress(themes.includes(kept()) ? kept() : "auto");
  get("theme").hidden = false;
  get("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length];
    keep(next);
    dress(next);
  });

  // The table: by column, and by what is typed.
  const table = get("things");
  if (table) {
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const value = (row, column) => {
      const cell = row.cells[column];
      return cell.dataset.ms === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.ms);
    };
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", "", head.textContent);
      button.type = "button";
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down === 1 ? "ascending" : "descending");
        const sorted = rows.map((row) => [value(row, column), row]);
        sorted.sort(([one], [other]) => (one < other ? -down : one > other ? down : 0));
        body.append(...sorted.map(([, row]) => row));
      });
      head.replaceChildren(button);
    });
    if (rows.length > 10) {
      const label = make("label", "filter", "Only those with");
      const input = make("input");
      input.type = "search";
      input.addEventListener("input", () => {
        const wanted = input.value.toLowerCase();
        for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      });
      label.append(input);
      table.parentElement.before(label);
    }
  }

  // The log. Only the lines that are to be seen are elements.
  const data = JSON.parse(get("data").textContent);
  const { kinds, rows, steps, jumps } = data;
  const began = Date.parse(data.began);
  const HEIGHT = 24;
  // Browsers take no element that is much taller.
  const TALLEST = 12e6;
  const list = get("list");
  const tall = get("tall");
  const STOPS = new Set(["stop.requested", "signal.received", "process.interrupted", "process.interrupt_reported", "process.killed"]);
  const kindOf = (index) => {
    const [name, level, step, program, errors] = kinds[rows[index][1]];
    return { name, level, step, program, errors };
  };
  const seqOf = (index) => {
    let low = 0;
    for (const [row, seq] of jumps) {
      if (row > index) break;
      low = seq + index - row;
    }
    return low;
  };
  const rowOf = (seq) => {
    let low = 0;
    let high = rows.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (seqOf(middle) < seq) low = middle + 1; else high = middle;
    }
    return low;
  };
  const pad = (number, digits) => String(number).padStart(digits, "0");
  const time = (ms) => {
    const seconds = Math.floor(ms / 1000);
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
    const rest = `${pad(seconds % 60, 2)}.${pad(ms % 1000, 3)}`;
    return hours ? `${hours}:${pad(minutes, 2)}:${rest}` : `${minutes}:${rest}`;
  };
  // In what the events carry, what would act on a terminal or turn the text around is named.
  const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (letter) => `[U+${pad(letter.charCodeAt(0).toString(16).toUpperCase(), 4)}]`);

  let shown = rows.map((_, index) => index);
  let active = -1;
  let words = [];
  let heap = null;
  const haystack = () => {
    heap ??= rows.map((row) => {
      const [name, , step, program] = kinds[row[1]];
      const more = row[3] === undefined ? "" : ` ${JSON.stringify(row[3])}`;
      return `${row[2]} ${name} ${program} ${step === null ? "" : steps[step]}${more}`.toLowerCase();
    });
    return heap;
  };

  // Where the list is so tall that a browser would not draw it, the bar moves it in larger steps.
  const wholeHeight = () => shown.length * HEIGHT;
  const drawnHeight = () => Math.min(wholeHeight(), TALLEST);
  const ratio = () => {
    const room = drawnHeight() - list.clientHeight;
    return room <= 0 ? 1 : (wholeHeight() - list.clientHeight) / room;
  };
  const marked = (parent, text) => {
    let rest = text;
    if (words.length) {
      const lower = text.toLowerCase();
      if (lower.length === text.length) {
        let at = 0;
        const next = () => {
          let found = [-1, 0];
          for (const word of words) {
            const place = lower.indexOf(word, at);
            if (place >= 0 && (found[0] < 0 || place < found[0])) found = [place, word.length];
          }
          return found;
        };
        for (let [place, length] = next(); place >= 0; [place, length] = next()) {
          parent.append(text.slice(at, place), make("mark", "", text.slice(place, place + length)));
          at = place + length;
        }
        rest = text.slice(at);
      }
    }
    parent.append(rest);
  };
  const draw = () => {
    tall.style.height = `${drawnHeight()}px`;
    const first = Math.max(0, Math.floor((list.scrollTop * ratio()) / HEIGHT) - 4);
    const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / HEIGHT) + 9);
    const shift = list.scrollTop - list.scrollTop * ratio();
    const drawn = [];
    for (let place = first; place < last; place += 1) {
      const index = shown[place];
      const { name, level, program } = kindOf(index);
      const [at, , text] = rows[index];
      const type = [`row l${level}`];
      if (program) type.push("output");
      if (name === "step.started") type.push("begins");
      if (STOPS.has(name)) type.push("stops");
      const row = make("div", type.join(" "));
      row.id = `row${index}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-posinset", place + 1);
      row.setAttribute("aria-setsize", shown.length);
      row.setAttribute("aria-selected", index === active);
      row.style.top = `${place * HEIGHT + shift}px`;
      row.dataset.index = index;
      const said = make("span", "text");
      marked(said, text);
      row.append(make("span", "at", time(at)), make("span", "tag", program || name), said);
      drawn.push(row);
    }
    tall.replaceChildren(...drawn);
    if (active >= 0 && get(`row${active}`)) list.setAttribute("aria-activedescendant", `row${active}`);
    else list.removeAttribute("aria-activedescendant");
  };
  const placeOf = (index) => {
    let low = 0;
    let high = shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (shown[middle] < index) low = middle + 1; else high = middle;
    }
    return low;
  };
  const reveal = (place) => {
    const top = place * HEIGHT;
    const seen = list.scrollTop * ratio();
    const room = list.clientHeight;
    if (top < seen || top + HEIGHT > seen + room) list.scrollTop = (top - room / 2) / ratio();
  };
  const tell = (index) => {
    const whole = get("whole");
    whole.hidden = index < 0;
    if (index < 0) return;
    const { name, level, step, program, errors } = kindOf(index);
    const [at, , text, more] = rows[index];
    const line = make("p");
    const facts = [`event ${seqOf(index)}`, name, ["debug", "info", "warn", "error"][level], `${time(at)} into the run`];
    if (Number.isFinite(began)) facts.push(new Date(began + at).toISOString());
    if (step !== null) facts.push(steps[step]);
    if (program) facts.push(`${program}, standard ${errors ? "error" : "output"}`);
    line.append(...facts.map((fact) => make("span", "", fact)));
    if (shown.length !== rows.length) {
      const button = make("button", "", "Show it among its neighbours");
      button.type = "button";
      button.addEventListener("click", () => { everything(); list.focus(); });
      line.append(button);
    }
    const said = make("pre");
    marked(said, text);
    whole.replaceChildren(line, said);
    if (more !== undefined) whole.append(make("pre", "", visible(JSON.stringify(more, null, 2))));
  };
  const choose = (index) => {
    active = index;
    if (index >= 0) reveal(placeOf(index));
    tell(index);
    draw();
  };
  const sift = () => {
    words = get("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const what = get("what").value;
    const least = Number(get("level").value);
    const step = get("step").value;
    const wanted = kinds.map(([name, level, of, program]) => level >= least
      && (step === "" || of === Number(step))
      && (what === "all" || (what === "output" ? program !== "" : what === "stops" ? STOPS.has(name) : program === "")));
    const texts = words.length ? haystack() : null;
    shown = [];
    for (let index = 0; index < rows.length; index += 1) {
      if (wanted[rows[index][1]] && (!texts || words.every((word) => texts[index].includes(word)))) shown.push(index);
    }
    const number = (count) => count.toLocaleString("en");
    get("count").textContent = shown.length === rows.length
      ? `${number(rows.length)} events` : `${number(shown.length)} of ${number(rows.length)} events`;
    if (active >= 0 && shown[placeOf(active)] !== active) active = -1;
    tall.style.height = `${drawnHeight()}px`;
    if (active < 0) list.scrollTop = 0;
    choose(active);
  };
  const everything = () => {
    get("tools").reset();
    sift();
  };
  const isProblem = (index) => {
    const { name, level } = kindOf(index);
    return level >= 2 || STOPS.has(name);
  };
  const problem = (way) => {
    let place = active < 0 ? (way > 0 ? -1 : shown.length) : placeOf(active);
    do place += way; while (place >= 0 && place < shown.length && !isProblem(shown[place]));
    if (place >= 0 && place < shown.length) choose(shown[place]);
  };
  const move = (by) => {
    const from = active < 0 ? Math.floor((list.scrollTop * ratio()) / HEIGHT) - Math.sign(by) : placeOf(active);
    const to = Math.max(0, Math.min(shown.length - 1, from + by));
    if (shown.length) choose(shown[to]);
  };

  for (const id of ["tools", "list", "keys"]) get(id).hidden = false;
  get("unscripted").remove();
  let soon = 0;
  get("find").addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(sift, 80); });
  for (const id of ["what", "level", "step"]) get(id).addEventListener("change", sift);
  get("tools").addEventListener("submit", (event) => event.preventDefault());
  get("before").addEventListener("click", () => problem(-1));
  get("after").addEventListener("click", () => problem(1));
  let drawing = false;
  list.addEventListener("scroll", () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; draw(); });
  });
  new ResizeObserver(draw).observe(list);
  list.addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) choose(Number(row.dataset.index));
  });
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(list.clientHeight / HEIGHT) - 1);
    const acts = {
      ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => move(page), PageUp: () => move(-page),
      Home: () => move(-rows.length), End: () => move(rows.length), n: () => problem(1), p: () => problem(-1),
      Enter: () => { if (active >= 0) everything(); },
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  get("find").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== "ArrowDown") return;
    event.preventDefault();
    clearTimeout(soon);
    sift();
    list.focus();
    if (active < 0) move(1);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
      event.preventDefault();
      get("log").scrollIntoView();
      get("find").focus();
    } else if (event.key === "Escape" && get("log").contains(event.target)) {
      everything();
    }
  });
  for (const link of document.querySelectorAll("a[data-step]")) {
    link.addEventListener("click", () => {
      get("tools").reset();
      get("step").value = link.dataset.step;
      sift();
    });
  }
  const follow = () => {
    const found = /^#e(\d+)$/.exec(location.hash);
    if (!found || !rows.length) return;
    everything();
    choose(rowOf(Number(found[1])));
    get("log").scrollIntoView();
    list.focus({ preventScroll: true });
  };
  addEventListener("hashchange", follow);
  sift();
  follow();
})();
