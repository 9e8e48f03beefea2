// Numbers of the page: JSON, and typed arrays by name.
const description = JSON.parse(document.getElementById('description').textContent);

const KINDS = { f4: Float32Array, f8: Float64Array, i4: Int32Array, u1: Uint8Array };

async function decodeArrays() {
  const text = atob(document.getElementById('arrays').textContent.trim());
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  return (name) => {
    const entry = description.arrays[name];
    return entry ? unpack(bytes, entry) : null;
  };
}

// Bytes of equal weight lie side by side; put each number together again.
function unpack(bytes, { kind, at, length }) {
  const values = new KINDS[kind](length);
  const out = new Uint8Array(values.buffer);
  const width = values.BYTES_PER_ELEMENT;
  for (let b = 0; b < width; b++) {
    for (let i = 0, from = at + b * length; i < length; i++) out[i * width + b] = bytes[from + i];
  }
  return values;
}

function cumulated(steps) {
  let sum = 0;
  return steps.map((step) => (sum += step));
}
