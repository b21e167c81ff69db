// Second part: a map as words joined by arcs, who looks on the left and what is looked at on the right. An arc is as
// wide as its weight and has its head's colour. Pins are the viewer's own, so that they stay when one goes back to the
// matrix.
const LINE = 30, BETWEEN = 300, MOST_ARCS = 2000, LEAST = 0.02;
class WordGraph {
  constructor(viewer) {
    this.viewer = viewer;
    this.heads = [];
    this.hover = null;   // [axis, index]: axis 0 is the left column
    this.cursor = null;  // the keyboard's word, framed
    this.scale = 1;
    this.chips = make('div', {className: 'chips', role: 'group', 'aria-label': 'Heads'});
    this.svg = makeSvg('svg', {role: 'img', 'aria-label': 'Words joined by arcs'});
    this.scroller = make('div', {className: 'scroller', tabindex: 0, role: 'application',
      'aria-label': 'Words joined by arcs. Up and down move, left and right change the column, Enter pins, Escape '
        + 'unpins.'}, this.svg);
    this.place = make('div', {className: 'graph', hidden: ''}, this.chips, this.scroller);
    this.svg.addEventListener('pointerover', event => this.point(event.target.closest('[data-axis]')));
    this.svg.addEventListener('pointerleave', () => this.point(null));
    this.svg.addEventListener('click', event => {
      const word = event.target.closest('[data-axis]');
      if (word) this.pin(+word.dataset.axis, +word.dataset.index);
    });
    this.scroller.addEventListener('keydown', event => this.key(event));
  }
  // The heads whose arcs are drawn.
  choose(heads) {
    this.heads = heads;
    this.arcs = null;
    this.cursor = this.hover = null;
    const all = allHeads(this.viewer.map);
    this.chips.replaceChildren(...(all.length < 2 ? [] : all).map(h => {
      const chip = make('button', {type: 'button', 'aria-pressed': heads.includes(h), onclick: () => {
        const left = this.heads.includes(h) ? this.heads.filter(other => other !== h) : [...this.heads, h];
        this.choose(left.sort((a, b) => a - b));
        this.viewer.draw();
        this.chips.children[h].focus();
      }}, makeSvg('svg', {width: 11, height: 11}, makeSvg('rect', {width: 11, height: 11, rx: 3})), 'head ' + (h + 1));
      return chip;
    }));
  }
  mean() {
    const {map} = this.viewer;
    if (this.heads.length) return matrixOfHeads(map, this.heads);
    const [rows, columns] = decoded(map).shape;
    return {values: new Float64Array(rows * columns), largest: 0, finite: true, rows, columns};
  }
  width() {
    const {rows, columns} = this.viewer.map;
    ruler.font = '15px ' + FONT;
    const longest = tokens =>
      Math.ceil(Math.max(20, ...tokens.map(token => ruler.measureText(fitLabel(token)).width)));
    this.left = longest(rows) + 20;
    this.right = longest(columns) + 20;
    return (this.left + BETWEEN + this.right + 8) * this.scale + 16;
  }
  zoomBy(factor) {
    this.scale = factor ? clamp(this.scale * factor, 0.5, 3) : 1;
    this.viewer.layout();
  }
  point(word) {
    const {viewer} = this, before = String(this.hover);
    this.hover = word ? [+word.dataset.axis, +word.dataset.index] : null;
    if (String(this.hover) === before) return;
    if (this.hover && viewer.at) viewer.at[this.hover[0]] = this.hover[1];
    viewer.draw();
  }
  pin(axis, index) {
    if (axis === 0) this.viewer.pin(index, -1); else this.viewer.pin(-1, index);
  }
  key(event) {
    const {viewer} = this, counts = [viewer.map.rows.length, viewer.map.columns.length];
    const steps = {ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9};
    const columns = {ArrowLeft: 0, ArrowRight: 1};
    if (event.ctrlKey || event.metaKey || event.altKey || !counts[0] || !counts[1]) return;
    const [axis, index] = this.cursor || [0, -1];
    if (event.key in steps || event.key in columns) {
      const to = event.key in columns ? columns[event.key] : axis;
      this.cursor = this.hover = [to, clamp(index + (steps[event.key] || 0), 0, counts[to] - 1)];
      if (viewer.at) viewer.at[to] = this.cursor[1];
      viewer.live.textContent = this.sentence();
      const y = LINE * this.cursor[1] * this.scale, below = y + 3 * LINE * this.scale - this.scroller.clientHeight;
      this.scroller.scrollTop = clamp(this.scroller.scrollTop, below, Math.max(0, y - LINE));
      viewer.draw();
      event.preventDefault();
    } else if (this.cursor && (event.key === 'Enter' || event.key === ' ')) {
      this.pin(...this.cursor);
      event.preventDefault();
    } else {
      viewer.key(event);
    }
  }
  // The strongest partner of the keyboard's word, for whoever listens.
  sentence() {
    const {map} = this.viewer, [axis, index] = this.cursor, m = this.mean();
    const names = axis === 0 ? [map.rows, map.columns] : [map.columns, map.rows];
    const weight = i => m.values[axis === 0 ? index * m.columns + i : i * m.columns + index];
    let best = 0;
    for (let i = 1; i < names[1].length; ++i) if (weight(i) > weight(best)) best = i;
    const arrow = axis === 0 ? ' → ' : ' ← ';
    return shown(names[0][index]) + arrow + shown(names[1][best]) + ': ' + number(weight(best));
  }
  // Which words are picked out: the pinned ones, else the one under the pointer, else none.
  picked() {
    const {rows, columns} = this.viewer.pinned;
    if (rows.size || columns.size) return [rows, columns];
    const picked = [new Set(), new Set()];
    if (this.hover) picked[this.hover[0]].add(this.hover[1]);
    return picked;
  }
  // The arcs of the chosen heads, strongest first.
  strongest() {
    if (this.arcs) return this.arcs;
    const {map} = this.viewer, [rows, columns] = decoded(map).shape, arcs = [];
    for (const h of this.heads) {
      for (let i = 0; i < rows * columns; ++i) {
        const weight = weightOf(map, map.codes[h * rows * columns + i]);
        if (weight >= LEAST && Number.isFinite(weight)) {
          arcs.push({head: h, row: Math.floor(i / columns), column: i % columns, weight});
        }
      }
    }
    arcs.sort((a, b) => b.weight - a.weight);
    this.arcs = arcs;
    return arcs;
  }
  paint() {
    const {map} = this.viewer, {rows, columns} = map, [pickedRows, pickedColumns] = this.picked();
    const any = pickedRows.size + pickedColumns.size > 0;
    const lines = Math.max(rows.length, columns.length), from = [this.top(rows.length), this.top(columns.length)];
    const width = this.left + BETWEEN + this.right + 8, height = LINE * lines + 12;
    this.svg.setAttribute('viewBox', '0 0 ' + width + ' ' + height);
    this.svg.setAttribute('width', Math.round(width * this.scale));
    this.svg.setAttribute('height', Math.round(height * this.scale));
    const arcs = this.strongest().filter(a => !any || pickedRows.has(a.row) || pickedColumns.has(a.column));
    const drawn = makeSvg('g', {fill: 'none', 'stroke-linecap': 'round', 'pointer-events': 'none'});
    const lane = Math.min(4, 14 / Math.max(1, this.heads.length));
    const opacity = weight => any ? 0.35 + 0.5 * weight : 0.12 + 0.6 * weight;
    for (const arc of arcs.slice(0, MOST_ARCS).reverse()) {
      const shift = (this.heads.indexOf(arc.head) - (this.heads.length - 1) / 2) * lane;
      const y = [from[0] + LINE * arc.row + shift, from[1] + LINE * arc.column + shift];
      const x = [this.left, this.left + BETWEEN], middle = this.left + BETWEEN / 2;
      const weight = Math.min(1, arc.weight);
      drawn.append(makeSvg('path', {
        d: 'M' + x[0] + ' ' + y[0] + 'C' + middle + ' ' + y[0] + ' ' + middle + ' ' + y[1] + ' ' + x[1] + ' ' + y[1],
        stroke: 'rgb(' + seriesColour(map.heads > 1 ? arc.head : 2).join() + ')',
        'stroke-width': (0.5 + 7.5 * weight).toFixed(2),
        'stroke-opacity': opacity(weight).toFixed(2)}));
    }
    if (this.made !== map) {
      this.made = map;
      this.columns = [this.makeWords(0, from[0]), this.makeWords(1, from[1])];
      this.svg.replaceChildren(drawn, ...this.columns[0].map(w => w.node), ...this.columns[1].map(w => w.node));
    } else {
      this.svg.replaceChild(drawn, this.svg.firstChild);
    }
    this.paintWords(0, pickedRows, pickedColumns);
    this.paintWords(1, pickedColumns, pickedRows);
    this.chips.querySelectorAll('rect').forEach((rect, h) =>
      rect.setAttribute('fill', 'rgb(' + seriesColour(h).join() + ')'));
    const hidden = arcs.length - MOST_ARCS;
    this.svg.setAttribute('aria-label', 'Words joined by ' + Math.min(MOST_ARCS, arcs.length) + ' arcs'
      + (hidden > 0 ? '; ' + hidden + ' weaker ones appear when a word is picked' : ''));
  }
  top(count) {
    const lines = Math.max(this.viewer.map.rows.length, this.viewer.map.columns.length);
    return 6 + LINE / 2 + LINE * (lines - count) / 2;
  }
  // One column of words, made once for a map: a click goes to the element on which the button went down, so what is
  // under the pointer must not be replaced by what the pointer changes.
  makeWords(axis, from) {
    const {map} = this.viewer, names = axis === 0 ? map.rows : map.columns;
    const x = axis === 0 ? 4 : this.left + BETWEEN + 4, width = (axis === 0 ? this.left : this.right) - 8;
    return names.map((token, i) => {
      const y = from + LINE * i;
      const word = {
        title: makeSvg('title'),
        box: makeSvg('rect', {x, y: y - LINE / 2 + 2, width, height: LINE - 4, rx: 5, 'stroke-width': 2}),
        text: makeSvg('text', {x: axis === 0 ? this.left - 10 : this.left + BETWEEN + 10, y: y + 5,
          'text-anchor': axis === 0 ? 'end' : 'start', 'font-family': FONT, 'font-size': 15}, this.fit(token))};
      word.node = makeSvg('g', {'data-axis': axis, 'data-index': i, cursor: 'pointer'},
        word.title, word.box, word.text);
      return word;
    });
  }
  // A word stands on the colour of the weight between it and the picked words of the other column.
  paintWords(axis, picked, others) {
    const {map} = this.viewer, m = this.mean(), table = tables[theme()];
    const names = axis === 0 ? map.rows : map.columns;
    const accent = css('--accent'), card = css('--card'), ink = css('--ink');
    this.columns[axis].forEach(({title, box, text}, i) => {
      let sum = 0;
      for (const k of others) sum += m.values[axis === 0 ? i * m.columns + k : k * m.columns + i];
      const mean = others.size ? sum / others.size : 0, ground = colourAt(table, mean), [red, green, blue] = ground;
      const light = 0.3 * red + 0.59 * green + 0.11 * blue > 140;
      const frame = picked.has(i) || this.cursor && this.cursor[0] === axis && this.cursor[1] === i;
      title.textContent = shown(names[i]) + (others.size ? ': ' + number(mean) : '');
      box.setAttribute('fill', others.size ? 'rgb(' + ground.join() + ')' : card);
      box.setAttribute('stroke', frame ? accent : 'none');
      text.setAttribute('font-weight', picked.has(i) ? 650 : 400);
      text.setAttribute('fill', !others.size ? ink : light ? '#171a26' : '#ffffff');
    });
  }
  fit(token) {
    ruler.font = '15px ' + FONT;
    return fitLabel(token);
  }
  // The picture as a file of its own.
  asText() {
    const copy = this.svg.cloneNode(true);
    copy.insertBefore(makeSvg('rect', {width: '100%', height: '100%', fill: css('--card')}), copy.firstChild);
    return new XMLSerializer().serializeToString(copy);
  }
}
