// Typesets one formula with MathJax, in a JavaScript engine without a page: CHTML for the eye, MathML for the ear.
// A formula is cut into runs, and a line may end between two of them: before a relation or an operator where the formula
// stands on its own, after one where it stands in a line of text; never inside parentheses, roots or fractions.

const { adaptor } = MathJax.startup;
const codeOf = (child) => adaptor.outerHTML(child);

globalThis.typeset = (tex, display) => {
  const container = MathJax.tex2chtml(tex, { display });
  const [math] = adaptor.childNodes(container);
  const failed = /data-mjx-error="([^"]*)"/.exec(codeOf(container));
  if (isLines(math)) {
    const width = Number(/min-width: ([\d.]+)em/.exec(codeOf(math))?.[1] ?? 0);
    adaptor.setAttribute(math, "lines", width > PHONE ? "wide" : "narrow");
    adaptor.tags(math, "mjx-mtd").forEach((cell) => intoRuns(cell, true));
  } else {
    intoRuns(math, display);
  }
  adaptor.setAttribute(math, "aria-hidden", "true");
  adaptor.removeAttribute(math, "style"); // margins that our style sets
  const spoken = MathJax.tex2mml(tex, { display })
    .replace(/>\s+</g, "><").replace(/ (data-mjx-[\w-]+|xmlns|display)="[^"]*"/g, "");
  const html = codeOf(math).replace(/ class="mjx-[in]"/g, ""); // classes that no rule names
  return JSON.stringify({ html, mathml: spoken, error: failed?.[1] ?? null });
};

// Lines under one another that are aligned at their signs: on a phone they may become lines of text.
const PHONE = 17; // em
function isLines(math) {
  const children = adaptor.childNodes(math);
  if (children.length !== 1 || adaptor.kind(children[0]) !== "mjx-mtable") return false;
  const cells = adaptor.tags(math, "mjx-mtd").map(codeOf);
  return cells.some((cell) => /^<mjx-mtd style="[^"]*text-align: right/.test(cell));
}

// Put what belongs together into runs, unless all of it does; statements beside one another are runs of runs.
function intoRuns(parent, display) {
  const all = [...adaptor.childNodes(parent)];
  const children = all.filter((child) => adaptor.kind(child) !== "mjx-tstrut");
  const run = (parts) => adaptor.node("mjx-run", {}, parts);
  const statements = cut(children, display);
  if (statements.flat().length < 2) return;
  all.forEach((child) => adaptor.remove(child));
  const made = statements.map((runs) => runs.map(run));
  const flat = made.length < 2 || !display;
  (flat ? made.flat() : made.map((runs) => (runs.length < 2 ? runs[0] : run(runs)))).forEach((each, i) => {
    if (i && !display) adaptor.append(parent, adaptor.node("wbr")); // here a line of text may end, and nowhere else
    adaptor.append(parent, each);
  });
  all.filter((child) => !children.includes(child)).forEach((strut) => adaptor.append(parent, strut));
}

// The space that MathJax puts before a relation and before an operator, and what opens and closes.
const RELATION = "4", OPERATOR = "3";
// The first glyph of an element, where it opens or closes; what closes may carry an exponent.
const OPENS = /^(<mjx-[^c][^>]*>)*<mjx-c class="mjx-c(28|5B|7B|27E8)[" ]/;
const CLOSES = /^(<mjx-[^c][^>]*>)*<mjx-c class="mjx-c(29|5D|7D|27E9)[" ]/;
// In glyphs: a shorter formula in a line of text stays in one piece; a longer run does not fit a phone.
const LONG = 14, WIDE = 24;

function cut(children, display) {
  const code = children.map(codeOf);
  if (!display && code.join("").split("<mjx-c ").length <= LONG) return [[children]];
  const statements = [[[]]];
  let depth = 0, gap = false, after = false, joint = false;
  children.forEach((child, i) => {
    const kind = adaptor.kind(child), runs = statements.at(-1);
    const sign = !joint && kind !== "mjx-mi" && kind !== "mjx-mn" && isSign(children, i);
    const words = kind === "mjx-mtext" && /^<mjx-mtext[^>]*><mjx-c class="mjx-c(A0|20)"><\/mjx-c><mjx-c/.test(code[i]);
    if (depth === 0 && gap) statements.push([[]]);
    else if (depth === 0 && runs.at(-1).length && (after || (sign && display) || words)) runs.push([]);
    gap = depth === 0 && isGap(children, i, code[i]);
    after = depth === 0 && sign && !display;
    joint = sign;
    statements.at(-1).at(-1).push(child);
    const single = code[i].split("<mjx-c ").length === 2;
    depth += (single && OPENS.test(code[i])) - ((single || /^mjx-msu(b|p|bsup)$/.test(kind)) && CLOSES.test(code[i]));
  });
  const pieces = (run) => (display && glyphs(run) > WIDE ? inPieces(run) : [run]);
  return statements.map((runs) => runs.filter((run) => run.length).flatMap(pieces)).filter((runs) => runs.length);
}

const glyphs = (run) => run.map(codeOf).join("").split("<mjx-c ").length - 1;

// What is longer than a phone's line goes on in the next one after a comma, or between two factors in parentheses.
function inPieces(run) {
  const pieces = [[]];
  run.forEach((child) => {
    const last = pieces.at(-1), before = last.findLast((each) => !isSpace(each)), code = codeOf(child);
    const factors = before && CLOSES.test(codeOf(before)) && OPENS.test(code);
    if (!isSpace(child) && (isComma(before) || factors)) pieces.push([child]);
    else last.push(child);
  });
  return pieces;
}

const isComma = (child) => !!child && adaptor.kind(child) === "mjx-mo" && codeOf(child).includes('mjx-c2C"');
const isSpace = (child) => /^mjx-(mspace|mstyle)$/.test(adaptor.kind(child)) && codeOf(child).includes("<mjx-mspace")
  && !codeOf(child).includes("<mjx-c ");

// A relation or an operator has the same space on both its sides, besides what the author put there.
function isSign(children, i) {
  const space = adaptor.getAttribute(children[i], "space");
  if (space !== RELATION && space !== OPERATOR) return false;
  const next = children.slice(i + 1).find((child) => !isSpace(child));
  return !!next && adaptor.getAttribute(next, "space") === space;
}

// A quad, or a comma before what is no space.
function isGap(children, i, code) {
  const next = children[i + 1];
  if (next && isSpace(next)) return false;
  return isSpace(children[i]) ? /width: [12]em/.test(code) : isComma(children[i]);
}
