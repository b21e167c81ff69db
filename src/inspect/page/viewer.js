// Third part: what a viewer is made of and how its matrix is painted. Pointer and keys are in the last part.
let ids = 0;
const viewers = [];
class MatrixViewer {
  constructor(place, maps) {
    this.maps = maps;
    for (const map of maps) map.id = ids++;
    this.map = maps[0];
    this.head = this.map.heads > 1 ? -1 : 0;
    this.scale = 'largest';
    this.pinned = {rows: new Set(), columns: new Set()};
    this.at = null;      // the cell under the pointer or the keyboard's cursor
    this.zoom = 0;       // 0: fit
    this.view = 'matrix';
    this.graph = new WordGraph(this);
    place.textContent = '';
    this.build(place);
    this.select(this.map, this.head);
    new ResizeObserver(() => this.layout()).observe(this.split);
    viewers.push(this);
  }
  build(place) {
    const button = (text, label, action) =>
      make('button', {type: 'button', 'aria-label': label, title: label, onclick: action}, text);
    this.heads = make('div', {className: 'heads'});
    this.what = make('span', {className: 'what'});
    const scale = make('select', {onchange: e => { this.scale = e.target.value; this.image = null; this.draw(); }});
    for (const [key, {name}] of Object.entries(scales)) scale.append(make('option', {value: key}, name));
    this.scroller = make('div', {className: 'scroller', tabindex: 0, role: 'application',
      'aria-label': 'Attention matrix. Arrow keys move, Enter pins, Escape unpins, plus and minus zoom, '
        + 'brackets change the head.'});
    this.canvas = make('canvas');
    this.extent = make('div', {className: 'extent'}, this.canvas);
    this.scroller.append(this.extent);
    this.tip = make('div', {className: 'tip', hidden: ''});
    this.live = make('div', {className: 'quiet-label', 'aria-live': 'polite'});
    this.legendBar = make('canvas', {width: 256, height: 1});
    this.legendEnd = make('span');
    this.legend = make('div', {className: 'legend'}, '0', this.legendBar, this.legendEnd);
    this.stage = make('div', {className: 'stage'}, this.scroller, this.graph.place, this.tip, this.live, this.legend);
    this.views = {};
    const views = make('span', {className: 'group'});
    for (const [view, text, label] of [['matrix', 'Matrix', 'The matrix'], ['words', 'Words', 'Words and arcs']]) {
      this.views[view] = button(text, label, () => this.show(view));
      views.append(this.views[view]);
    }
    this.side = make('div', {className: 'side'});
    this.lists = make('div');
    const keys = (...names) => names.flatMap(name => [make('kbd', {}, name), ' ']);
    this.side.append(this.lists, make('div', {className: 'hint'},
      'Click a cell to pin its row and column, a label to pin one more: several pinned rows are summed. ',
      ...keys('←', '↑', '→', '↓'), 'move, ', ...keys('Enter'), 'pins, ', ...keys('Esc'), 'unpins, ',
      ...keys('+', '−', '0'), 'zoom, ',
      ...keys('[', ']'), 'head, ', ...keys('{', '}'), 'layer.'));
    this.numbers = make('details', {}, make('summary', {}, 'Numbers'), make('div', {className: 'numbers'}));
    this.numbers.addEventListener('toggle', () => this.fillNumbers());
    if (this.maps.length > 1 || this.maps[0].heads > 1) place.append(this.heads);
    this.scaleChoice = make('label', {}, 'Colours', scale);
    this.pictureButton = button('PNG', 'Download what is shown as a picture', () => this.savePicture());
    this.split = make('div', {className: 'split'}, this.stage, this.side);
    place.append(
      make('div', {className: 'bar'}, this.what, views, this.scaleChoice,
        make('span', {className: 'group'}, button('−', 'Zoom out', () => this.zoomBy(1 / 1.4)),
          button('Fit', 'Fit the width', () => this.zoomBy(0)), button('+', 'Zoom in', () => this.zoomBy(1.4))),
        make('span', {className: 'group'}, button('CSV', 'Download this matrix as CSV', () => this.saveCsv()),
          this.pictureButton),
        button('Unpin', 'Clear the pinned rows and columns', () => this.unpin())),
      this.split, this.numbers);
    this.listen();
    this.buildHeads();
    this.show('matrix');
  }
  show(view) {
    this.view = view;
    const words = view === 'words';
    for (const [name, button] of Object.entries(this.views)) button.setAttribute('aria-pressed', name === view);
    this.scroller.hidden = this.legend.hidden = this.scaleChoice.hidden = words;
    this.graph.place.hidden = !words;
    this.pictureButton.textContent = words ? 'SVG' : 'PNG';
    this.tip.hidden = true;
    if (this.m) this.layout();
  }
  buildHeads() {
    const most = Math.max(...this.maps.map(map => map.heads));
    const top = make('tr', {}, make('th'));
    if (most > 1) top.append(make('th', {}, 'mean'));
    for (let h = 0; h < most; ++h) top.append(make('th', {}, most > 1 ? String(h + 1) : ''));
    const body = make('tbody');
    this.thumbs = [];
    const seen = new IntersectionObserver(entries => {
      for (const e of entries) if (e.isIntersecting) { seen.unobserve(e.target); e.target.paint(); }
    });
    for (const map of this.maps) {
      const row = make('tr', {}, make('th', {scope: 'row'}, shown(map.name)));
      if (map.heads === 1 && most > 1) row.append(make('td'));
      for (let h = map.heads > 1 ? -1 : 0; h < map.heads; ++h) {
        const side = 58, ratio = map.columns.length / Math.max(1, map.rows.length);
        const canvas = make('canvas', {width: clamp(Math.round(side * Math.min(1, ratio)), 14, side),
          height: clamp(Math.round(side / Math.max(1, ratio)), 14, side)});
        canvas.paint = () => map.rows.length && map.columns.length && thumbnail(canvas, map, h, tables[theme()]);
        const label = shown(map.name) + ', ' + (h < 0 ? 'mean over the heads' : 'head ' + (h + 1));
        const button = make('button',
          {type: 'button', 'aria-label': label, title: label, onclick: () => this.select(map, h)}, canvas);
        this.thumbs.push({map, head: h, button, canvas});
        row.append(make('td', {}, button));
        seen.observe(canvas);
      }
      body.append(row);
    }
    this.heads.append(make('table', {}, make('thead', {}, top), body));
  }
  select(map, head) {
    const alike = (a, b) => a.join('\0') === b.join('\0');
    const same = this.m && alike(map.rows, this.map.rows) && alike(map.columns, this.map.columns);
    this.map = map;
    this.head = clamp(head, map.heads > 1 ? -1 : 0, map.heads - 1);
    this.m = matrixOf(map, this.head);
    if (!same) {  // pins stay while the tokens are the same: heads can be compared
      this.unpin(false);
      this.at = this.strongest();
    }
    this.image = null;
    for (const t of this.thumbs) t.button.setAttribute('aria-pressed', t.map === map && t.head === this.head);
    const which = this.head < 0 ? ' · mean over ' + map.heads + ' heads' : ' · head ' + (this.head + 1);
    this.what.textContent = shown(map.name) + (map.heads === 1 ? '' : which);
    this.graph.choose(this.head < 0 ? allHeads(map) : [this.head]);
    this.measure();
    this.layout();
    this.fillNumbers();
  }
  strongest() {
    const {values, largest, rows, columns} = this.m, i = values.indexOf(largest);
    return rows && columns ? [Math.floor(Math.max(0, i) / columns), Math.max(0, i) % columns] : null;
  }
  measure() {
    ruler.font = '13px ' + FONT;
    this.rowLabels = this.map.rows.map(fitLabel);
    this.columnLabels = this.map.columns.map(fitLabel);
    const longest = labels =>
      Math.ceil(labels.reduce((most, label) => Math.max(most, ruler.measureText(label).width), 10));
    const head = longest(this.columnLabels);
    this.left = longest(this.rowLabels) + 16;
    this.top = Math.ceil(head * Math.sin(SLANT)) + 18;
    const last = this.columnLabels.length
      ? ruler.measureText(this.columnLabels[this.columnLabels.length - 1]).width : 0;
    this.right = Math.ceil(Math.max(last, head * 0.7) * Math.cos(SLANT)) + 6;
  }
  layout() {
    const beside = getComputedStyle(this.split).gridTemplateColumns.split(' ').length > 1;
    const width = this.split.clientWidth - (beside ? 318 : 0);  // the side panel and the gap
    if (width <= 0 || !this.m) return;
    const {rows, columns} = this.m;
    const room = (width - this.left - this.right - 2) / Math.max(1, columns);
    const fit = clamp(room, 1, clamp(620 / Math.max(1, rows), 20, 46));
    this.cell = this.zoom || (fit > 4 ? Math.floor(fit) : fit);
    this.extentWidth = Math.ceil(this.left + columns * this.cell + this.right);
    this.extentHeight = Math.ceil(this.top + rows * this.cell + 4);
    const wanted = this.view === 'words' ? this.graph.width() : this.extentWidth + 16;
    this.stage.style.width = Math.min(width, Math.max(300, wanted)) + 'px';
    this.extent.style.width = this.extentWidth + 'px';
    this.extent.style.height = this.extentHeight + 'px';
    this.draw();
  }
  zoomBy(factor, x = 0, y = 0) {
    if (this.view === 'words') { this.graph.zoomBy(factor); return; }
    const old = this.cell;
    this.zoom = factor ? clamp(this.cell * factor, 1, 72) : 0;
    if (this.zoom > 4) this.zoom = Math.round(this.zoom);
    this.layout();
    this.scroller.scrollLeft += (this.scroller.scrollLeft + x) * (this.cell / old - 1);
    this.scroller.scrollTop += (this.scroller.scrollTop + y) * (this.cell / old - 1);
  }
  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => { this.pending = 0; this.paint(); });
  }
  paint() {
    if (this.view === 'words') {
      this.graph.paint();
      this.fillLists();
      return;
    }
    const width = Math.min(this.scroller.clientWidth, this.extentWidth);
    const height = Math.min(this.scroller.clientHeight || this.extentHeight, this.extentHeight);
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = width + 'px';
    canvas.style.height = height + 'px';
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    this.paintTo(context, width, height, this.scroller.scrollLeft, this.scroller.scrollTop);
    this.paintLegend();
    this.fillLists();
  }
  paintTo(context, width, height, dx, dy) {
    const {m, cell, left, top} = this, table = tables[theme()];
    context.fillStyle = css('--card');
    context.fillRect(0, 0, width, height);
    if (!m.rows || !m.columns) return;
    if (!this.image) this.image = imageOf(m, this.scale, table);
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    context.translate(left - dx, top - dy);
    context.imageSmoothingEnabled = cell < 1;
    context.drawImage(this.image, 0, 0, m.columns * cell, m.rows * cell);
    const first = [Math.max(0, Math.floor(dy / cell)), Math.max(0, Math.floor(dx / cell))];
    const last = [Math.min(m.rows, Math.ceil((dy + height - top) / cell)),
      Math.min(m.columns, Math.ceil((dx + width - left) / cell))];
    if (cell >= 10) this.paintGrid(context, first, last);
    if (cell >= 30) this.paintValues(context, first, last, table);
    context.strokeStyle = css('--line');
    context.lineWidth = 1;
    context.strokeRect(.5, .5, m.columns * cell - 1, m.rows * cell - 1);
    this.paintMarks(context);
    context.restore();
    this.paintLabels(context, width, height, dx, dy, first, last);
  }
  paintGrid(context, first, last) {
    const {cell} = this;
    context.strokeStyle = css('--card');
    context.lineWidth = 1;
    context.beginPath();
    for (let r = first[0]; r <= last[0]; ++r) {
      context.moveTo(first[1] * cell, r * cell);
      context.lineTo(last[1] * cell, r * cell);
    }
    for (let c = first[1]; c <= last[1]; ++c) {
      context.moveTo(c * cell, first[0] * cell);
      context.lineTo(c * cell, last[0] * cell);
    }
    context.stroke();
  }
  paintValues(context, first, last, table) {
    const {m, cell} = this;
    context.font = '11px ' + FONT;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    for (let r = first[0]; r < last[0]; ++r) for (let c = first[1]; c < last[1]; ++c) {
      const v = m.values[r * m.columns + c];
      if (Math.abs(v) < 0.015) continue;
      const [red, green, blue] = colourAt(table, placeOf(this.scale, v, m));
      context.fillStyle = 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? '#171a26' : '#ffffff';
      const text = !Number.isFinite(v) ? number(v)
        : cell >= 48 ? v.toFixed(3) : v.toFixed(2).replace(/^(-?)0\./, '$1.');
      context.fillText(text, (c + .5) * cell, (r + .5) * cell + .5);
    }
  }
  paintMarks(context) {
    const {m, cell} = this, accent = css('--accent');
    const line = (r, c, rows, columns, strong) => {
      context.strokeStyle = accent;
      context.lineWidth = strong ? 2 : 1;
      context.strokeRect(c * cell + .5, r * cell + .5, columns * cell - 1, rows * cell - 1);
    };
    for (const r of this.pinned.rows) line(r, 0, 1, m.columns, true);
    for (const c of this.pinned.columns) line(0, c, m.rows, 1, true);
    if (!this.at) return;
    line(this.at[0], 0, 1, m.columns);
    line(0, this.at[1], m.rows, 1);
    line(this.at[0], this.at[1], 1, 1, true);
  }
  paintLabels(context, width, height, dx, dy, first, last) {
    const {cell, left, top} = this, every = Math.ceil(15 / cell);
    const ink = css('--ink'), quiet = css('--quiet'), accent = css('--accent');
    const chosen = (axis, i) => this.pinned[axis ? 'columns' : 'rows'].has(i) || this.at && this.at[axis] === i;
    const near = (axis, i) => {
      for (let k = -every + 1; k < every; ++k) if (k && chosen(axis, i + k)) return true;
      return false;
    };
    context.textBaseline = 'middle';
    const put = (axis, i) => {
      const strong = chosen(axis, i);
      if (!strong && (i % every || near(axis, i))) return;
      context.font = (strong ? '650 ' : '') + (cell < 15 ? 12 : 13) + 'px ' + FONT;
      context.fillStyle = strong ? accent : every > 1 ? quiet : ink;
      const center = (i + .5) * cell;
      if (axis === 0) {
        context.textAlign = 'right';
        context.fillText(this.rowLabels[i], left - 8, top - dy + center);
      } else {
        context.save();
        context.translate(left - dx + center, top - 7);
        context.rotate(-SLANT);
        context.textAlign = 'left';
        context.fillText(this.columnLabels[i], 0, 0);
        context.restore();
      }
    };
    context.save();
    context.beginPath(); context.rect(0, top - 7, left, height - top + 7); context.clip();
    for (let r = first[0]; r < last[0]; ++r) put(0, r);
    context.restore();
    context.save();
    context.beginPath(); context.rect(left - 6, 0, width, top); context.clip();
    for (let c = first[1]; c < last[1]; ++c) put(1, c);
    context.restore();
  }
  paintLegend() {
    const table = tables[theme()], context = this.legendBar.getContext('2d');
    const rooted = this.scale === 'root';
    for (let i = 0; i < 256; ++i) {
      context.fillStyle = 'rgb(' + colourAt(table, rooted ? Math.sqrt(i / 255) : i / 255).join() + ')';
      context.fillRect(i, 0, 1, 1);
    }
    this.legendEnd.textContent = number(scales[this.scale].end(this.m)).replace(/(\.\d*?[1-9])0+$|\.0+$/, '$1')
      + (this.m.finite ? '' : '   · orange: not finite');
  }
  // Sums over the chosen rows (axis 0) or columns (axis 1), as tokens of the other side with their weights.
  sums(axis, chosen) {
    const m = this.view === 'words' ? this.graph.mean() : this.m;
    const other = axis === 0 ? this.map.columns : this.map.rows;
    return other.map((token, i) => {
      let sum = 0;
      for (const k of chosen) sum += m.values[axis === 0 ? k * m.columns + i : i * m.columns + k];
      return {token, sum};
    });
  }
  fillLists() {
    this.lists.textContent = '';
    const list = (axis, title) => {
      const pins = this.pinned[axis === 0 ? 'rows' : 'columns'];
      const chosen = pins.size ? [...pins].sort((a, b) => a - b) : this.at ? [this.at[axis]] : [];
      const section = make('section', {}, make('h4', {}, title + (pins.size > 1 ? ' · sum of ' + pins.size : '')));
      this.lists.append(section);
      if (!chosen.length) { section.append(make('div', {className: 'who'}, '—')); return; }
      const names = axis === 0 ? this.map.rows : this.map.columns;
      const who = chosen.slice(0, 12).map(i => shown(names[i])).join(' ') + (chosen.length > 12 ? ' …' : '');
      section.append(make('div', {className: 'who'}, who));
      const all = this.sums(axis, chosen);
      const largest = Math.max(...all.map(a => Number.isFinite(a.sum) ? a.sum : 0), 1e-30);
      const order = a => Number.isFinite(a.sum) ? a.sum : 1e9;
      all.sort((a, b) => order(b) - order(a));
      for (const {token, sum} of all.slice(0, 7)) {
        const bar = make('canvas', {width: 96, height: 11}), context = bar.getContext('2d');
        context.fillStyle = css('--soft');
        context.fillRect(0, 0, 96, 11);
        context.fillStyle = css('--accent');
        const filled = Number.isFinite(sum) ? clamp(sum / Math.max(largest, pins.size || 1), 0, 1) : 0;
        context.fillRect(0, 0, 96 * filled, 11);
        section.append(make('div', {className: 'meter'}, make('span', {title: shown(token)}, shown(token)), bar,
          make('span', {}, Number.isFinite(sum) ? sum.toFixed(3) : number(sum))));
      }
      const rest = all.slice(7).reduce((s, a) => s + a.sum, 0);
      if (all.length > 7) {
        section.append(make('div', {className: 'meter'}, make('span', {}, (all.length - 7) + ' others'), make('span'),
          make('span', {}, Number.isFinite(rest) ? rest.toFixed(3) : number(rest))));
      }
    };
    list(0, 'Row: where it looks');
    list(1, 'Column: who looks at it');
  }
}
