// Elements of registers as numbers: the types that matrix instructions take.

// name: [exponent bits, mantissa bits, bias, what the largest exponent means]
const FLOATS = {
  f16: [5, 10, 15, "ieee"], bf16: [8, 7, 127, "ieee"], f32: [8, 23, 127, "ieee"], xf32: [8, 23, 127, "ieee"], f64: [11, 52, 1023, "ieee"],
  fp8: [4, 3, 7, "nan"], bf8: [5, 2, 15, "ieee"], fp8_fnuz: [4, 3, 8, "fnuz"], bf8_fnuz: [5, 2, 16, "fnuz"],
  fp6: [2, 3, 1, ""], bf6: [3, 2, 3, ""], fp4: [2, 1, 1, ""],
};

/** The value of an element of `width` bits, given as a BigInt. */
function valueOf(type, width, raw) {
  if (type === "i8" || type === "i32") return Number(BigInt.asIntN(width, raw));
  if (type === "e8m0") return raw === 255n ? NaN : 2 ** (Number(raw) - 127);
  if (!(type in FLOATS)) return Number(raw);
  const [exponentBits, mantissaBits, bias, top] = FLOATS[type];
  const sign = raw >> BigInt(exponentBits + mantissaBits) & 1n ? -1 : 1;
  const exponent = Number(raw >> BigInt(mantissaBits) & (1n << BigInt(exponentBits)) - 1n);
  const mantissa = Number(raw & (1n << BigInt(mantissaBits)) - 1n), last = 2 ** exponentBits - 1, one = 2 ** mantissaBits;
  if (top === "fnuz" && sign < 0 && !exponent && !mantissa) return NaN;
  if (top === "ieee" && exponent === last) return mantissa ? NaN : sign * Infinity;
  if (top === "nan" && exponent === last && mantissa === one - 1) return NaN;
  return sign * (exponent ? (1 + mantissa / one) * 2 ** (exponent - bias) : (mantissa / one) * 2 ** (1 - bias));
}

/** The registers of a visit: words[register][lane]. */
function words(text) {
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0)), flat = new Uint32Array(raw.buffer);
  return range(flat.length / 64).map((at) => flat.subarray(64 * at, 64 * at + 64));
}

/** Bits of an element that begins at a place, across two registers where it does not end in the first. */
function bitsAt(registers, place, width) {
  const register = place >> 11, lane = place >> 5 & 63;
  const low = BigInt(registers[register][lane]), high = BigInt(registers[register + 1]?.[lane] ?? 0);
  return (low | high << 32n) >> BigInt(place & 31) & (1n << BigInt(width)) - 1n;
}

const shortly = (value) => (Number.isInteger(value) && Math.abs(value) < 1e5 ? String(value) : Number.isFinite(value) ? String(+value.toPrecision(4)) : String(value));

/** The value of each element of an operand, from its registers at a visit. */
function valuesOf({ type, bits, places }, text) {
  const registers = words(text);
  return places.map((place) => (place < 0 || (place >> 11) + (bits > 32 ? 1 : 0) >= registers.length ? NaN : valueOf(type, bits, bitsAt(registers, place, bits))));
}
