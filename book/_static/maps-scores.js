// Nine ways to tell attention where words stand: the scores of eight words, one row for each query, one column for each
// key. Words, weights and frequencies are fixed; tests/test_maps.py computes the same with the library's encodings.
const geoMaps = (() => {
  const WORDS = ["the", "big", "red", "dog", "ran", "to", "the", "sea"];
  const D = 8, PAIRS = D / 2, FIRST = 1, PLACES = 14, TRAINED = 10; // training saw the places 0 ... TRAINED - 1
  const METHODS = ["none", "sines", "learned", "rope", "alibi", "xpos", "riemannformer", "liere", "gates", "liere-grid"];
  const SETTINGS = { base: 100, slope: 0.3, scale: 0.86, gateBias: 2, span: 12 };
  const ABSOLUTE = ["sines", "learned", "riemannformer", "liere-grid"], PLACELESS = ["none", "gates"];

  /** Rows of numbers between -size and size, the same on every machine. */
  function table(seed, rows, columns, size) {
    let state = seed;
    const next = () => { // mulberry32
      state = (state + 0x6d2b79f5) | 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    return Array.from({ length: rows }, () => Array.from({ length: columns }, () => size * (2 * next() - 1)));
  }

  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  const times = (matrix, x) => matrix.map((row) => dot(row, x));
  const product = (a, b) => a.map((row) => b[0].map((_, j) => {
    let sum = 0;
    for (let i = 0; i < row.length; i++) sum += row[i] * b[i][j];
    return sum;
  }));

  const own = table(3, WORDS.length, D, 1.2);
  const WEIGHTS = {
    x: WORDS.map((word) => own[WORDS.indexOf(word)]), // a word has the same features wherever it stands
    query: table(11, D, D, 0.9),
    key: table(12, D, D, 0.9),
    gate: table(13, 1, D, 0.9)[0],
    learned: table(14, TRAINED, D, 1.4),
    skew: table(15, 4, 6, 0.7), // block 1 along rows and columns, block 2 along rows and columns
  };
  const RATES = Array.from({ length: PAIRS }, (_, j) => SETTINGS.base ** (-j / PAIRS));
  const ZETA = RATES.map((_, j) => (j / PAIRS + 0.4) / 1.4); // of xPos, one a pair

  /** Queries and keys of the words as they are, or of what came in their place. */
  const asking = (x) => x.map((each) => times(WEIGHTS.query, each));
  const answering = (x) => x.map((each) => times(WEIGHTS.key, each));
  const ASKS = asking(WEIGHTS.x), ANSWERS = answering(WEIGHTS.x);

  /** q . k / sqrt d for all pairs; `more(m, n)` is added. */
  function scored(queries, keys, more = () => 0) {
    return queries.map((q, m) => keys.map((k, n) => dot(q, k) / Math.sqrt(D) + more(m, n)));
  }

  /** Each pair of x turned by its angle, made `length(j)` times as long. */
  function turned(x, angles, length = () => 1) {
    return angles.flatMap((angle, j) => {
      const [c, s, f] = [Math.cos(angle), Math.sin(angle), length(j)];
      return [f * (c * x[2 * j] - s * x[2 * j + 1]), f * (s * x[2 * j] + c * x[2 * j + 1])];
    });
  }

  /** exp of a small matrix: Taylor's series of its 2^-6th part by Horner's rule, squared six times. */
  function exponential(matrix) {
    let sum = matrix.map((row, i) => row.map((_, j) => +(i === j)));
    for (let n = 9; n >= 1; n--) {
      sum = product(matrix, sum).map((row, i) => row.map((x, j) => x / (64 * n) + +(i === j)));
    }
    for (let n = 0; n < 6; n++) sum = product(sum, sum);
    return sum;
  }

  /** LieRE's rotation of a block of four at (row, column). */
  function rotation([row, column], block) {
    const skew = [0, 1, 2, 3].map(() => [0, 0, 0, 0]), [rows, columns] = WEIGHTS.skew.slice(2 * block, 2 * block + 2);
    let entry = 0;
    for (let i = 0; i < 4; i++) {
      for (let j = i + 1; j < 4; j++, entry++) {
        skew[i][j] = row * rows[entry] + column * columns[entry];
        skew[j][i] = -skew[i][j];
      }
    }
    return exponential(skew);
  }

  /** Queries and keys turned by both blocks, each word at its (row, column). */
  function liere(at) {
    const turns = at.map((each) => [rotation(each, 0), rotation(each, 1)]);
    const turn = (x, m) => turns[m].flatMap((matrix, b) => times(matrix, x.slice(4 * b, 4 * b + 4)));
    return scored(ASKS.map(turn), ANSWERS.map(turn));
  }

  /** The cell of a table that a place is rounded to, a half to the even one. */
  function cell(place) {
    const low = Math.floor(place), rest = place - low;
    return rest === 0.5 ? low + (low % 2) : Math.round(place);
  }

  /** On a grid the words stand in two rows of four. */
  const inRows = (places) => places.map((_, m) => [Math.floor(m / 4), places[m % 4]]);

  const RULES = {
    none: () => scored(ASKS, ANSWERS),
    sines(places) { // pair j of what is added: the sine and the cosine of m theta_j
      const x = places.map((m, i) => WEIGHTS.x[i].map((value, f) => {
        const angle = m * RATES[f >> 1];
        return value + (f % 2 ? Math.cos(angle) : Math.sin(angle));
      }));
      return scored(asking(x), answering(x));
    },
    learned(places) { // past its table there is nothing to add, and no score
      const x = places.map((m, i) => WEIGHTS.x[i].map((value, f) => value + (WEIGHTS.learned[cell(m)]?.[f] ?? NaN)));
      return scored(asking(x), answering(x));
    },
    rope(places) {
      const turn = (x, i) => turned(x, RATES.map((rate) => places[i] * rate));
      return scored(ASKS.map(turn), ANSWERS.map(turn));
    },
    alibi: (places) => scored(ASKS, ANSWERS, (m, n) => -SETTINGS.slope * Math.abs(places[m] - places[n])),
    xpos(places) { // RoPE; pair j of a query at m is zeta_j^(m / span) times as long, that of a key zeta_j^(-m / span)
      const turn = (way) => (x, i) => turned(x, RATES.map((rate) => places[i] * rate),
        (j) => ZETA[j] ** ((way * places[i]) / SETTINGS.span));
      return scored(ASKS.map(turn(1)), ANSWERS.map(turn(-1)));
    },
    riemannformer(places) { // T_m^-1 = s^(m/2) R(-m theta), for queries and keys alike
      const back = (x, i) => turned(x, RATES.map((rate) => -places[i] * rate), () => SETTINGS.scale ** (places[i] / 2));
      return scored(ASKS.map(back), ANSWERS.map(back));
    },
    liere: (places) => liere(places.map((m) => [0, m])),
    gates() { // key n fades by the gate of each word after it, up to the query; later keys have no score
      const logs = WEIGHTS.x.map((x) => -Math.log1p(Math.exp(-dot(WEIGHTS.gate, x) - SETTINGS.gateBias)));
      const between = (m, n) => (n > m ? NaN : logs.slice(n + 1, m + 1).reduce((sum, g) => sum + g, 0));
      return scored(ASKS, ANSWERS, between);
    },
    "liere-grid": (places) => liere(inRows(places)),
  };

  /** All scores of a method with the words at these places, row by row; NaN where there is none. */
  const scores = (method, places) => RULES[method](places).flat();

  /** Where the words stand when the sentence is moved by `shift`, neighbours `spread` apart. */
  const placed = (shift, spread) => WORDS.map((_, i) => FIRST + shift + i * spread);

  /** Which cells show what training never did: a place where places count, a distance where only distances do. */
  function fresh(method, places) {
    const at = method === "liere-grid" ? inRows(places).map(([, column]) => column) : places, last = TRAINED - 1 + 1e-9;
    const never = ABSOLUTE.includes(method) ? (m, n) => Math.max(m, n) > last
      : PLACELESS.includes(method) ? () => false : (m, n) => Math.abs(m - n) > last;
    return at.flatMap((m) => at.map((n) => never(m, n)));
  }

  /** The largest difference between two maps; what one of them lacks counts as 1. */
  const change = (a, b) => Math.max(...a.map((x, i) => {
    if (Number.isNaN(x) || Number.isNaN(b[i])) return +(Number.isNaN(x) !== Number.isNaN(b[i]));
    return Math.abs(x - b[i]);
  }));

  /** Whether a step of the whole sentence changes a method's map. */
  const moves = (method) => change(scores(method, placed(0, 1)), scores(method, placed(1, 1))) > 1e-9;

  return { WORDS, FIRST, PLACES, TRAINED, METHODS, SETTINGS, WEIGHTS, RATES, ZETA, scores, placed, fresh, change, moves };
})();
