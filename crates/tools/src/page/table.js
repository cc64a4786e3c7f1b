// A table of any length that can be sorted by its headings. Only visible rows are in the page.

const ROW = 27;

// `columns`: { key, title, isText, value(row), show(row) -> text or element }.
function makeTable(app, root, { columns, onChoose, sortedBy }) {
  const table = { rows: [], sort: { key: sortedBy, isUp: false }, words: "", shown: [] };
  const head = el("tr", { role: "row" }), body = el("tbody");
  const scroller = el("div", { class: "rows", tabindex: "0", role: "group", "aria-label": "rows" });
  const above = el("tr", { "aria-hidden": "true" }), beneath = el("tr", { "aria-hidden": "true" });
  scroller.append(el("table", {}, el("thead", {}, head), body));
  root.replaceChildren(scroller);
  for (const column of columns) {
    const button = el("button", { type: "button", onclick: () => sortBy(column.key) }, column.title);
    head.append(el("th", { scope: "col", class: (column.isText ? "" : "number ") + (column.class ?? ""), "data-key": column.key }, button));
  }
  scroller.addEventListener("scroll", () => paint());
  scroller.addEventListener("keydown", event => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const at = table.shown.findIndex(row => row.key === app.selected);
    const row = table.shown[Math.max(0, Math.min(table.shown.length - 1, at < 0 ? 0 : at + by))];
    if (row) onChoose(row, true);
  });

  function sortBy(key) {
    const isSame = table.sort.key === key;
    const column = columns.find(column => column.key === key);
    table.sort = { key, isUp: isSame ? !table.sort.isUp : Boolean(column.isText) };
    arrange();
  }

  function filter(words) {
    table.words = words;
    arrange();
  }

  function set(rows) {
    table.rows = rows;
    arrange();
  }

  function arrange() {
    const words = table.words.toLowerCase().split(/\s+/).filter(Boolean);
    const column = columns.find(column => column.key === table.sort.key);
    const sign = table.sort.isUp ? 1 : -1;
    const order = column.isText
      ? (a, b) => sign * String(column.value(a)).localeCompare(String(column.value(b)))
      : (a, b) => sign * (column.value(a) - column.value(b));
    table.shown = table.rows.filter(row => words.every(word => row.searched.includes(word))).sort(order);
    for (const cell of head.children) {
      const isSorted = cell.dataset.key === table.sort.key;
      cell.setAttribute("aria-sort", !isSorted ? "none" : table.sort.isUp ? "ascending" : "descending");
    }
    paint();
  }

  function paint() {
    const first = Math.max(0, Math.floor(scroller.scrollTop / ROW) - 4);
    const last = Math.min(table.shown.length, first + Math.ceil((scroller.clientHeight || 400) / ROW) + 8);
    above.style.height = first * ROW + "px";
    beneath.style.height = (table.shown.length - last) * ROW + "px";
    const rows = table.shown.slice(first, last).map(row =>
      el("tr", { class: (row.key === app.selected ? "chosen" : "") + (row.isGone ? " gone" : ""), "aria-selected": String(row.key === app.selected), "data-key": row.key, onclick: () => onChoose(row, false) },
        ...columns.map(column => el("td", { class: (column.isText ? "" : "number ") + (column.class ?? "") }, column.show(row)))));
    body.replaceChildren(above, ...rows, beneath);
    root.dataset.rows = table.shown.length;
  }

  // Scrolls to the chosen row.
  function reveal() {
    const at = table.shown.findIndex(row => row.key === app.selected);
    if (at < 0) return;
    const top = at * ROW, seen = scroller.clientHeight - 2 * ROW;
    if (top < scroller.scrollTop) scroller.scrollTop = top;
    else if (top > scroller.scrollTop + seen) scroller.scrollTop = top - seen;
    paint();
  }

  return { set, filter, paint, reveal, table };
}
