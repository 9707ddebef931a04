// The search shows a stretch of each page it finds: of its text, without buttons, links to places, and folded scripts.
Search.htmlToText = (html, anchor) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  const text = page.querySelector("article.bd-article") ?? page.body;
  text.querySelectorAll("script, style, .headerlink, mjx-math, button, svg, .prev-next-footer").forEach((part) => part.remove());
  return ((anchor && text.querySelector(anchor)) || text).textContent.replace(/\s+/g, " ");
};
