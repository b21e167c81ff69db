// Last part: pointer, keys, pins, numbers and files; then the viewers are made.
class Viewer extends MatrixViewer {
  // Which cell, or which label (row -1 or column -1 where there is none), lies under a pointer.
  hit(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const across = x - this.left + this.scroller.scrollLeft;
    const row = y < this.top ? -1 : Math.floor((y - this.top + this.scroller.scrollTop) / this.cell);
    let column = x < this.left && row >= 0 ? -1 : Math.floor(across / this.cell);
    if (row < 0) column = Math.floor((across - (this.top - 7 - y) / Math.tan(SLANT)) / this.cell);
    if (row >= this.m.rows || column >= this.m.columns || (row < 0 && column < 0)) return null;
    return [row, column];
  }
  listen() {
    const {canvas, scroller} = this;
    canvas.addEventListener('pointermove', event => {
      const hit = this.hit(event);
      const inside = hit && hit[0] >= 0 && hit[1] >= 0;
      if (inside) this.at = hit;  // else the last cell stays, so that the lists keep still on the way to them
      this.showTip(event, inside);
      this.draw();
    });
    canvas.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    canvas.addEventListener('click', event => {
      const hit = this.hit(event);
      if (hit) this.pin(...hit);
    });
    scroller.addEventListener('scroll', () => this.draw(), {passive: true});
    scroller.addEventListener('wheel', event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      const x = event.clientX - box.left - this.left, y = event.clientY - box.top - this.top;
      this.zoomBy(event.deltaY < 0 ? 1.25 : 0.8, x, y);
    }, {passive: false});
    scroller.addEventListener('keydown', event => this.key(event));
  }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
      Home: [0, -1e9], End: [0, 1e9], PageUp: [-10, 0], PageDown: [10, 0]};
    const {map, maps} = this;
    const step = by => this.select(map, clamp(this.head + by, map.heads > 1 ? -1 : 0, map.heads - 1));
    const layer = by => this.select(maps[clamp(maps.indexOf(map) + by, 0, maps.length - 1)], this.head);
    const actions = {'+': () => this.zoomBy(1.4), '=': () => this.zoomBy(1.4), '-': () => this.zoomBy(1 / 1.4),
      '0': () => this.zoomBy(0), '[': () => step(-1), ']': () => step(1), '{': () => layer(-1), '}': () => layer(1),
      Escape: () => this.unpin(), Enter: () => this.at && this.pin(...this.at),
      ' ': () => this.at && this.pin(...this.at)};
    if (moves[event.key]) {
      const [down, right] = moves[event.key];
      const [r, c] = this.at ? [this.at[0] + down, this.at[1] + right] : [0, 0];
      if (!this.m.rows || !this.m.columns) return;
      this.at = [clamp(r, 0, this.m.rows - 1), clamp(c, 0, this.m.columns - 1)];
      this.reveal();
      this.live.textContent = this.sentence();
      this.tip.hidden = true;
      this.draw();
    } else if (actions[event.key]) {
      actions[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  }
  reveal() {
    const {scroller, cell} = this, [r, c] = this.at;
    const roomX = scroller.clientWidth - this.left, roomY = scroller.clientHeight - this.top;
    scroller.scrollLeft = clamp(scroller.scrollLeft, (c + 1) * cell - roomX, c * cell);
    scroller.scrollTop = clamp(scroller.scrollTop, (r + 1) * cell - roomY, r * cell);
  }
  sentence() {
    const [r, c] = this.at, value = this.m.values[r * this.m.columns + c];
    return shown(this.map.rows[r]) + ' → ' + shown(this.map.columns[c]) + ': ' + number(value);
  }
  showTip(event, inside) {
    this.tip.hidden = !inside;
    if (!inside) return;
    const [r, c] = this.at;
    this.tip.textContent = '';
    this.tip.append(shown(this.map.rows[r]), ' → ', shown(this.map.columns[c]), '  ',
      make('b', {}, number(this.m.values[r * this.m.columns + c])));
    const box = this.stage.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const left = x + 16 + this.tip.offsetWidth > box.width ? x - 12 - this.tip.offsetWidth : x + 16;
    this.tip.style.left = Math.max(0, left) + 'px';
    this.tip.style.top = y + 18 + 'px';
  }
  pin(row, column) {
    const {rows, columns} = this.pinned;
    const toggle = (set, i) => set.has(i) ? set.delete(i) : set.add(i);
    if (row >= 0 && column >= 0) {  // a cell stands for its row and its column alone
      const same = rows.size === 1 && columns.size === 1 && rows.has(row) && columns.has(column);
      rows.clear(); columns.clear();
      if (!same) { rows.add(row); columns.add(column); }
    } else if (row >= 0) toggle(rows, row);
    else toggle(columns, column);
    this.draw();
  }
  unpin(redraw = true) {
    this.pinned.rows.clear();
    this.pinned.columns.clear();
    if (redraw) this.draw();
  }
  fillNumbers() {
    if (!this.numbers.open) return;
    const rows = Math.min(this.m.rows, 100), columns = Math.min(this.m.columns, 100);
    const place = this.numbers.querySelector('.numbers');
    const head = make('tr', {}, make('th'));
    for (let c = 0; c < columns; ++c) head.append(make('th', {scope: 'col'}, shown(this.map.columns[c])));
    const body = make('tbody');
    for (let r = 0; r < rows; ++r) {
      const line = make('tr', {}, make('th', {scope: 'row'}, shown(this.map.rows[r])));
      for (let c = 0; c < columns; ++c) line.append(make('td', {}, number(this.m.values[r * this.m.columns + c])));
      body.append(line);
    }
    const cut = rows < this.m.rows || columns < this.m.columns;
    place.replaceChildren(make('table', {}, make('thead', {}, head), body));
    this.numbers.querySelector('summary').textContent =
      cut ? 'Numbers (the first ' + rows + ' × ' + columns + '; CSV has all)' : 'Numbers';
  }
  fileName(end) {
    const head = this.map.heads === 1 ? '' : this.head < 0 ? ' mean' : ' head ' + (this.head + 1);
    return ('attention ' + this.map.name + head).replace(/[^\w]+/g, '-') + end;
  }
  saveCsv() {
    const lines = [['', ...this.map.columns].map(csvCell).join()];
    for (let r = 0; r < this.m.rows; ++r) {
      const values = this.m.values.subarray(r * this.m.columns, (r + 1) * this.m.columns);
      lines.push([csvCell(this.map.rows[r]), ...Array.from(values, v => String(+v.toPrecision(6)))].join());
    }
    save(new Blob(['\ufeff' + lines.join('\r\n') + '\r\n'], {type: 'text/csv'}), this.fileName('.csv'));
  }
  savePicture() {
    if (this.view === 'words') {
      save(new Blob([this.graph.asText()], {type: 'image/svg+xml'}), this.fileName('-words.svg'));
      return;
    }
    const ratio = clamp(8192 / Math.max(this.extentWidth, this.extentHeight), 0.25, 2);
    const canvas = make('canvas',
      {width: Math.round(this.extentWidth * ratio), height: Math.round(this.extentHeight * ratio)});
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    this.paintTo(context, this.extentWidth, this.extentHeight, 0, 0);
    canvas.toBlob(blob => blob && save(blob, this.fileName('.png')));
  }
  restyle() {
    this.image = null;
    for (const t of this.thumbs) t.canvas.paint();
    this.draw();
  }
}
for (const place of document.querySelectorAll('.viewer')) {
  const maps = data.pages[+place.dataset.page].maps;
  if (maps.length) new Viewer(place, maps); else place.remove();
}
const restyle = () => viewers.forEach(viewer => viewer.restyle());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', restyle);
document.getElementById('theme').addEventListener('click', () => {
  root.dataset.theme = dark() ? 'light' : 'dark';
  restyle();
});
