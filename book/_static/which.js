// Which encoding?: the five questions are buttons. Those answered with yes narrow the table to the methods that serve.
(() => {
  const list = document.querySelector("#five-questions > ol");
  const table = [...document.querySelectorAll("table")].find(({ tHead }) => tHead?.textContent.includes("question"));
  if (!list || !table) return;
  const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === "question");
  const rows = [...table.tBodies[0].rows], yes = new Set(), element = (tag) => document.createElement(tag);
  const serves = rows.map((row) => new Set(row.cells[column].textContent.match(/\d/g)));
  const told = element("p"), count = element("span"), all = element("button");
  told.className = "asked";
  count.setAttribute("role", "status");
  count.setAttribute("aria-live", "polite");
  [all.type, all.className, all.textContent] = ["button", "quiet", "Show all"];
  told.append(count, " ", all);
  list.after(told);
  table.tabIndex = -1;
  table.id ||= "methods";

  const buttons = [...list.children].map((item, i) => {
    const words = item.querySelector("strong"), button = element("button");
    [button.type, button.className, button.textContent] = ["button", "question", words.textContent];
    words.replaceWith(button);
    button.addEventListener("click", () => {
      if (!yes.delete(i + 1)) yes.add(i + 1);
      narrow();
    });
    return button;
  });
  all.addEventListener("click", () => {
    yes.clear();
    narrow();
    buttons[0].focus();
  });

  function narrow() {
    const kept = rows.filter((row, i) => !(row.hidden = ![...yes].every((each) => serves[i].has(String(each)))));
    const asked = [...yes].sort().join(" and "), link = element("a");
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(yes.has(i + 1))));
    [link.href, link.textContent] = [`#${table.id}`, "the table"];
    all.hidden = !yes.size;
    if (!yes.size) count.replaceChildren("Press the questions that you answer with yes. Then ", link, " keeps what serves.");
    else {
      const names = kept.map((row) => row.cells[0].textContent.trim()).join(", ");
      count.replaceChildren(`${kept.length} of ${rows.length} methods in `, link, ` serve ${asked}`,
        names ? `: ${names}.` : ". What does is said beside the question.");
    }
  }
  narrow();
})();
