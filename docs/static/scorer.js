// How the search ranks what it finds: a heading that has the words as they were asked, then pages for users, then the others.
// All but the last function are the defaults of Sphinx.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, anchor, description, score, file, kind]) => {
    const isAboutTheProject = ["architecture", "benchmarks", "changelog", "mcp-benchmarks"].includes(page);
    return score + (kind === "title" ? 100 : 0) - (isAboutTheProject ? 20 : 0);
  },
};
