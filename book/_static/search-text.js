// The search shows a stretch of each page it finds, around the word, and leads to the section that it stands in.
(() => {
  const FURNITURE = "script, style, .headerlink, mjx-math, button, svg, .reading, .prev-next-footer";
  const textOf = (part) => part.textContent.replace(/\s+/g, " ").trim();
  const at = (text, word) => text.search(new RegExp(`(?<!\\w)${_escapeRegExp(word)}`, "i"));  // where a word begins so
  const holds = (part, words) => words.every((word) => at(textOf(part), word) >= 0);

  function articleOf(html, without) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const article = page.querySelector("article.bd-article") ?? page.body;
    article.querySelectorAll(without).forEach((part) => part.remove());
    return article;
  }

  // The index knows stems: of holonomy, "holonomi". What stands in the text begins as the stem does.
  const beginning = (stem) => stem.replace(/(?<=...)i$/, "");

  // The words as they were typed, else all of them in one place, else one of them; in sentences, else in code.
  function placeOf(html, stems, anchor) {
    const typed = (new URLSearchParams(location.search).get("q") ?? "").trim();
    const words = [...stems].map(beginning);
    for (const without of [`${FURNITURE}, .cell`, FURNITURE]) {
      const article = articleOf(html, without);
      const from = (anchor && article.querySelector(anchor)) || article;
      for (const asked of [[typed], words, ...words.map((word) => [word])]) {
        if (!holds(from, asked)) continue;
        const within = (part) => [...part.querySelectorAll(":scope > section")].find((inner) => holds(inner, asked));
        let place = from;
        for (let inner = place; inner; inner = within(place)) place = inner;
        return [place, asked[0]];
      }
    }
    return [articleOf(html, FURNITURE), ""];
  }

  Search.makeSearchSummary = (html, stems, anchor) => {
    const [place, word] = placeOf(html, stems, anchor);
    const heading = place.querySelector(":scope > :is(h2, h3, h4)");
    const title = heading ? textOf(heading) : "";
    const text = textOf(place).slice(title.length);
    if (!text) return null;
    queueMicrotask(() => stretch.closest("li").addEventListener("click", () => { // page.js opens what folds around it
      try { sessionStorage.setItem("searched", word); } catch { /* private browsing */ }
    }));
    const from = Math.max(at(text, word) - 120, 0);
    const stretch = document.createElement("p");
    stretch.className = "context";
    if (title && place.id) {
      const link = document.createElement("a");
      link.textContent = title;
      stretch.append(link, ". ");
      queueMicrotask(() => {  // by then it stands in the result, whose own link is the page's
        link.href = `${stretch.closest("li").querySelector("a").href.split("#")[0]}#${place.id}`;
      });
    }
    const end = from + 240 < text.length ? "..." : "";
    stretch.append(`${from ? "..." : ""}${text.slice(from, from + 240).trim()}${end}`);
    return stretch;
  };

  // A word's pages before the functions that have it in their names; a function's full name leads to the function.
  Scorer.objPartialMatch = 3;
  Scorer.objPrio = { 0: 0, 1: 0, 2: -5 };
})();
