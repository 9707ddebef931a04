// The search shows a stretch of each page it finds, around the word, and leads to the section that it stands in.
(() => {
  const FURNITURE = "script, style, .headerlink, mjx-math, button, svg, .reading, .prev-next-footer, .cell_input";
  const textOf = (part) => part.textContent.replace(/\s+/g, " ").trim();
  const at = (text, word) => text.search(new RegExp(`(?<!\\w)${_escapeRegExp(word)}`, "i")); // where a word begins so

  Search.makeSearchSummary = (html, stems, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const article = page.querySelector("article.bd-article") ?? page.body;
    article.querySelectorAll(FURNITURE).forEach((part) => part.remove());
    // The words as they were typed, else a stem: of holonomy the index knows "holonomi".
    const typed = (new URLSearchParams(location.search).get("q") ?? "").trim();
    const words = [typed, ...[...stems].map((stem) => stem.replace(/(?<=...)i$/, ""))];
    let place = (anchor && article.querySelector(anchor)) || article;
    const word = words.find((each) => at(textOf(place), each) >= 0) ?? "";
    const within = (part) => [...part.querySelectorAll(":scope > section")].find((inner) => at(textOf(inner), word) >= 0);
    for (let inner = place; inner; inner = within(place)) place = inner;
    const heading = place.querySelector(":scope > :is(h2, h3, h4)"), title = heading ? textOf(heading) : "";
    const text = textOf(place).slice(title.length), from = Math.max(at(text, word) - 120, 0);
    if (!text) return null;
    const stretch = document.createElement("p"), link = document.createElement("a");
    stretch.className = "context";
    if (title && place.id) {
      link.textContent = title;
      stretch.append(link, ". ");
      queueMicrotask(() => { // by then it stands in the result, whose own link is the page's
        link.href = `${stretch.closest("li").querySelector("a").href.split("#")[0]}#${place.id}`;
      });
    }
    stretch.append(`${from ? "..." : ""}${text.slice(from, from + 240).trim()}${from + 240 < text.length ? "..." : ""}`);
    return stretch;
  };

  // A word's pages before the functions that have it in their names; a function's full name leads to the function.
  Scorer.objPartialMatch = 3;
  Scorer.objPrio = { 0: 0, 1: 0, 2: -5 };
})();
