// Put the page together.
async function start() {
  const array = remembered(await decodeArrays());
  $('source').textContent = description.source;
  $('headline').replaceChildren(...emphasised(description.headline));
  $('subline').replaceChildren(...emphasised(description.subline));
  $('facts').replaceChildren(...description.facts.flatMap(([name, text]) => [element('dt', {}, name), element('dd', {}, text)]));
  $('notes').replaceChildren(...description.notes.map((note) => element('li', {}, note)));
  if (description.kind === 'training') startTraining(array);
  else startScores(array);
  document.documentElement.dataset.ready = 'true';
}

function startScores(array) {
  startThreshold(array);
  const scoreChart = new ScoreChart(array);
  let showDetail = () => {};
  const chooseSeries = (k) => {
    scoreChart.choose(k);
    scoreChart.draw();
    markSeries();
    showReadout(array);
  };
  const markSeries = startFleet(scoreChart, chooseSeries);
  markSeries();
  const choose = (row) => {
    state.selected = row;
    const k = description.series.findIndex((series) => series.index === row.series);
    if (k >= 0 && k !== state.series) chooseSeries(k);
    table.mark();
    showDetail();
    scoreChart.plot.redraw(false);
  };
  const table = new SegmentTable(choose);
  showDetail = startDetail(array, scoreChart, (step) => choose(table.neighbour(step)));
  startAssociations(array);
  showTiles();
  showReadout(array);
  $('segments-count').textContent = `${plural(description.segmentCount, 'run')} of rows`;
  const incidents = new IncidentTable((one) => {
    const inside = table.all.filter((row) => row.verdict !== 'missed' && row.series === one.series && row.first < one.end && row.end > one.first);
    if (inside.length) choose(inside.reduce((a, b) => (b.peak > a.peak ? b : a)));
    incidents.mark(one);
  });
  if (incidents.listed.length) incidents.choose(incidents.listed[0]);
  else if (table.listed.length) choose(table.listed[0]);
}

function remembered(array) {
  const known = new Map();
  return (name) => {
    if (!known.has(name)) known.set(name, array(name));
    return known.get(name);
  };
}

// Pairs of text and whether it stands out.
const emphasised = (parts) => parts.map(([text, strong]) => (strong ? element('strong', {}, text) : text));

start().catch((error) => {
  document.body.prepend(element('p', { class: 'failure', role: 'alert' }, `This report could not be shown: ${error.message}. It needs a browser of 2023 or later.`));
  throw error;
});
