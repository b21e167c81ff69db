// First part: weights, colours and texts. Everything from the data reaches the page by textContent or fillText, never
// as markup. A matrix is one image of rows x columns pixels, scaled while drawing, under a canvas no larger than the
// window: 512 x 512 scrolls smoothly.
const data = JSON.parse(document.getElementById('fovea-data').textContent);
const root = document.documentElement;
const dark = () => root.dataset.theme
  ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
const theme = () => dark() ? 'dark' : 'light';
const bytesOf = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
const tables = {light: bytesOf(data.colours.light), dark: bytesOf(data.colours.dark)};
const seriesColour = i => data.series[theme()][i % data.series.light.length];
const NOT_FINITE = [213, 94, 0];
const clamp = (x, low, high) => Math.min(high, Math.max(low, x));
const css = name => getComputedStyle(root).getPropertyValue(name).trim();
const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'className') node.className = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
const SVG = 'http:' + '//www.w3.org/2000/svg';  // the name of the language, no address: nothing is fetched
const makeSvg = (tag, attributes = {}, ...children) => {
  const node = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
// Controls as pictures; joiners stay, they are part of the writing.
const shown = token => token === '' ? '∅' : token
  .replace(/[\u0000-\u001f]/g, c => String.fromCharCode(0x2400 + c.charCodeAt(0)))
  .replace(/[\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, '\ufffd');
const number = x => Number.isNaN(x) ? 'NaN' : x === Infinity ? '∞' : x === -Infinity ? '−∞'
  : x === 0 ? '0' : Math.abs(x) < 0.0001 ? x.toExponential(1) : x.toFixed(4);

// Weights of a map, decoded when first looked at. A code is low + code * step; the three highest are -inf, +inf, NaN.
const decoded = map => {
  if (map.codes) return map;
  const bytes = bytesOf(map.weights);
  map.weights = null;
  map.codes = map.bits === 8 ? bytes : new Uint16Array(bytes.length / 2);
  if (map.bits === 16) {
    for (let i = 0; i < map.codes.length; ++i) map.codes[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
  }
  map.top = 2 ** map.bits - 1;
  map.shape = [map.rows.length, map.columns.length];
  return map;
};
const weightOf = (map, code) => code <= map.top - 3 ? map.low + code * map.step
  : code === map.top ? NaN : code === map.top - 1 ? Infinity : -Infinity;
const matrixCache = new Map();
const allHeads = map => Array.from({length: map.heads}, (_, h) => h);
const matrixOfHeads = (map, heads) => {  // the mean over these heads
  const key = map.id + ':' + heads.join();
  if (matrixCache.has(key)) return matrixCache.get(key);
  decoded(map);
  const size = map.shape[0] * map.shape[1], values = new Float64Array(size);
  for (const h of heads) {
    for (let i = 0; i < size; ++i) values[i] += weightOf(map, map.codes[h * size + i]) / heads.length;
  }
  let largest = 0, finite = true;
  for (const v of values) if (Number.isFinite(v)) largest = Math.max(largest, v); else finite = false;
  const matrix = {values, largest, finite, rows: map.shape[0], columns: map.shape[1]};
  if (matrixCache.size > 24) matrixCache.delete(matrixCache.keys().next().value);
  matrixCache.set(key, matrix);
  return matrix;
};
const matrixOf = (map, head) => matrixOfHeads(map, head < 0 ? allHeads(map) : [head]);  // -1: all of them
const colourAt = (table, position) => {
  if (!Number.isFinite(position)) return NOT_FINITE;
  const i = 3 * Math.round(255 * clamp(position, 0, 1));
  return [table[i], table[i + 1], table[i + 2]];
};
const share = (v, m) => m.largest > 0 ? Math.max(0, v) / m.largest : 0;
const scales = {
  largest: {name: '0 to the largest', place: share, end: m => m.largest},
  root: {name: 'square root', place: (v, m) => Math.sqrt(share(v, m)), end: m => m.largest},
  one: {name: '0 to 1', place: v => v, end: () => 1},
};
const placeOf = (scale, v, m) => Number.isFinite(v) ? scales[scale].place(v, m) : NaN;
const imageOf = (m, scale, table) => {
  const canvas = make('canvas', {width: Math.max(1, m.columns), height: Math.max(1, m.rows)});
  const context = canvas.getContext('2d'), image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < m.values.length; ++i) {
    const [r, g, b] = colourAt(table, placeOf(scale, m.values[i], m));
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
};
// A thumbnail keeps the largest weight of every block, so that a thin diagonal of a long input does not fade away.
const thumbnail = (canvas, map, head, table) => {
  const m = matrixOf(map, head), w = canvas.width, h = canvas.height;
  const best = new Float64Array(w * h).fill(-Infinity);
  const fx = w / m.columns, fy = h / m.rows;
  if (fx >= 1 && fy >= 1) {
    for (let y = 0; y < h; ++y) {
      for (let x = 0; x < w; ++x) best[y * w + x] = m.values[Math.floor(y / fy) * m.columns + Math.floor(x / fx)];
    }
  } else {
    for (let r = 0; r < m.rows; ++r) {
      for (let c = 0; c < m.columns; ++c) {
        const i = Math.min(h - 1, Math.floor(r * fy)) * w + Math.min(w - 1, Math.floor(c * fx));
        const v = m.values[r * m.columns + c];
        if (!(v <= best[i])) best[i] = v;
      }
    }
  }
  const context = canvas.getContext('2d'), image = context.createImageData(w, h);
  for (let i = 0; i < best.length; ++i) {
    const [r, g, b] = colourAt(table, best[i] === -Infinity ? 0 : placeOf('largest', best[i], m));
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
};
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
const MAX_LABEL = 150, SLANT = 55 * Math.PI / 180;
const ruler = document.createElement('canvas').getContext('2d');
const fitLabel = token => {
  const text = shown(token);
  if (ruler.measureText(text).width <= MAX_LABEL) return text;
  const letters = Array.from(text);
  while (letters.length && ruler.measureText(letters.join('') + '…').width > MAX_LABEL) letters.pop();
  return letters.join('') + '…';
};
const save = (blob, name) => {
  const link = make('a', {href: URL.createObjectURL(blob), download: name});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};
// A spreadsheet would run a cell that starts with one of these as a formula.
const csvCell = text =>
  '"' + (text.length > 1 && /^[=+\-@\t\r]/.test(text) ? "'" : '') + text.replace(/"/g, '""') + '"';
