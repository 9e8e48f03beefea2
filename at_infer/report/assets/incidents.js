// The table of incidents: what a person is told about, worst first; a click shows the rows of one.
class IncidentTable {
  constructor(chosen) {
    const { incidents, seriesCount, labelled, threshold } = description;
    this.chosen = chosen;
    this.shown = PAGE;
    this.order = { by: 'Peak', down: true };
    this.columns = [
      { name: 'Begin', by: (one) => one.first }, { name: 'End', by: (one) => one.end },
      { name: 'Rows', by: (one) => one.end - one.first, number: true },
      { name: 'Peak', by: (one) => one.peak, number: true, title: threshold > 0 ? '× threshold' : 'Peak score' },
    ];
    if (seriesCount > 1) this.columns.unshift({ name: 'Series', by: (one) => one.name });
    if (labelled) this.columns.unshift({ name: 'Verdict', by: (one) => one.verdict });
    const explained = incidents.shown.some((one) => one.causes.length);
    if (explained) this.columns.push({ name: 'Causes', by: (one) => one.causes[0]?.[0] ?? '' });
    const { open, close, merge } = incidents.rules;
    const expected = incidents.expectedPerDay === null ? '' : `; about ${short(incidents.expectedPerDay)} false ones a day expected by the validation part`;
    $('incidents-rules').textContent = `Open above ${short(open)}, close below ${short(close)}, bridge ${plural(merge, 'row')}${expected}`;
    const left = incidents.count - incidents.shown.length;
    const listed = left > 0 ? `The ${whole(incidents.shown.length)} worst of ${whole(incidents.count)} are listed. ` : '';
    $('incidents-hint').textContent = explained ? `${listed}Percentages: the feature's share of the error, summed over the rows of the incident.` : listed;
    $('incidents-more').addEventListener('click', () => {
      this.shown += 10 * PAGE;
      this.fill();
    });
    this.head();
    this.fill();
  }

  head() {
    $('incidents').tHead.replaceChildren(element('tr', { role: 'row' }, ...this.columns.map((column) => {
      const cell = element('th', { scope: 'col', role: 'columnheader', class: column.number ? 'number' : '' }, element('button', { type: 'button', onclick: () => this.sort(column.name) }, column.title ?? column.name));
      cell.setAttribute('aria-sort', column.name === this.order.by ? (this.order.down ? 'descending' : 'ascending') : 'none');
      return cell;
    })));
  }

  sort(name) {
    this.order = { by: name, down: this.order.by === name ? !this.order.down : name === 'Peak' || name === 'Rows' };
    this.head();
    this.fill();
  }

  fill() {
    const { by } = this.columns.find((column) => column.name === this.order.by), sign = this.order.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    this.listed = [...description.incidents.shown].sort((a, b) => sign * compare(by(a), by(b)) || a.first - b.first);
    const body = $('incidents').tBodies[0];
    body.replaceChildren(...this.listed.slice(0, this.shown).map((one) => this.row(one)));
    if (!this.listed.length) body.append(element('tr', { role: 'row' }, element('td', { role: 'cell', colspan: this.columns.length }, 'No incident.')));
    $('incidents-more').hidden = this.listed.length <= this.shown;
    $('incidents-more').textContent = `Show more (${whole(this.listed.length - this.shown)} left)`;
    this.mark(this.marked);
  }

  row(one) {
    const { threshold } = description, rows = one.end - one.first;
    const cell = (text, kind = '') => element('td', { class: kind }, ...[].concat(text));
    const cause = ([feature, part, view]) => element('span', { class: 'chip' }, feature, ' ', element('small', {}, `${description.incidents.exact ? '' : '≥ '}${share(part, 1)}${view ? `, ${view}` : ''}`));
    const cells = {
      Verdict: () => cell(element('span', { class: `verdict ${one.verdict}` }, WORDS[one.verdict] ?? '')),
      Series: () => cell(one.name, 'name'),
      Begin: () => cell(moment(one.times[0], one.first)),
      End: () => cell(one.open ? 'still open' : moment(one.times[1], one.end - 1, one.times[0])),
      Rows: () => cell(whole(rows), 'number'),
      Peak: () => cell(threshold > 0 ? short(one.peak / threshold) : short(one.peak), 'number'),
      Causes: () => cell(one.causes.filter(([, part], k) => k === 0 || part >= 0.01).slice(0, 3).map(cause), 'wrap'),
    };
    const made = element('tr', { tabindex: '0', role: 'row', title: `incident ${one.id}`, onclick: () => this.choose(one), onkeydown: (event) => this.key(event, one) }, ...this.columns.map((column) => {
      const filled = cells[column.name]();
      filled.setAttribute('role', 'cell');
      filled.dataset.column = column.name;
      if (column.name === 'Rows') filled.dataset.unit = rows === 1 ? ' row' : ' rows';
      return filled;
    }));
    made.entry = one;
    return made;
  }

  key(event, one) {
    const next = { ArrowDown: event.currentTarget.nextElementSibling, ArrowUp: event.currentTarget.previousElementSibling }[event.key];
    if (next) next.focus();
    if (event.key === 'Enter' || event.key === ' ') this.choose(one);
    if (next || event.key === 'Enter' || event.key === ' ') event.preventDefault();
  }

  choose(one) {
    this.chosen(one);
  }

  mark(one) {
    this.marked = one;
    for (const row of $('incidents').tBodies[0].rows) row.setAttribute('aria-selected', String(row.entry !== undefined && row.entry === one));
  }
}
