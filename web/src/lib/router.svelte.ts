/** Everything has an address: the History API, no hashes but messages (`#m12`). */
export type PageName = 'workbench' | 'search' | 'live' | 'usage' | 'import' | 'settings' | 'unknown'

export interface Route {
  page: PageName
  session: string | null
  seq: number | null
  query: URLSearchParams
  path: string
  /** Whoever came here is writing: the composer has the focus from the first moment. */
  composes?: boolean
}

const PAGES: Record<string, PageName> = {
  '/': 'workbench',
  '/search': 'search',
  '/live': 'live',
  '/usage': 'usage',
  '/import': 'import',
  '/settings': 'settings',
}

export function parse(address: URL): Route {
  const path = address.pathname.replace(/\/+$/, '') || '/'
  const session = /^\/s\/([^/]+)$/.exec(path)?.[1]
  const seq = /^#m(\d+)$/.exec(address.hash)?.[1]
  return {
    page: session ? 'workbench' : (PAGES[path] ?? 'unknown'),
    session: session ? readable(session) : null,
    seq: seq ? Number(seq) : null,
    query: address.searchParams,
    path,
  }
}

/** What an address names; what no browser would write stands as it is, and is found nowhere. */
function readable(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

class Router {
  route = $state.raw<Route>(parse(new URL(location.href)))

  start(): void {
    addEventListener('popstate', () => this.read())
    document.addEventListener('click', (event) => this.follow(event))
  }

  go(to: string, { replace = false, composes = false } = {}): void {
    const target = new URL(to, location.href)
    if (target.href !== location.href) history[replace ? 'replaceState' : 'pushState']({}, '', target)
    this.route = { ...parse(new URL(location.href)), composes }
  }

  /** The address of the same page with other filters. */
  filtered(changes: Record<string, string | null>): string {
    const query = new URLSearchParams(this.route.query)
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === '') query.delete(name)
      else query.set(name, value)
    }
    const text = query.toString()
    return `${this.route.path}${text ? `?${text}` : ''}`
  }

  /** The same page with other filters. */
  filter(changes: Record<string, string | null>): void {
    this.go(this.filtered(changes), { replace: true })
  }

  private read(): void {
    this.route = parse(new URL(location.href))
  }

  private follow(event: MouseEvent): void {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return
    const link = (event.target as Element | null)?.closest?.('a[href]') as HTMLAnchorElement | null
    if (!link || link.target || link.hasAttribute('download') || link.origin !== location.origin) return
    if (link.pathname.startsWith('/api/') || link.pathname === '/login') return
    event.preventDefault()
    this.go(link.href)
  }
}

export const router = new Router()

/** The list's filters stay in the address while a session is open. */
export function sessionPath(id: string, seq?: number | null): string {
  // What belongs to one session stays with it.
  return `/s/${encodeURIComponent(id)}${listQuery((name) => name !== 'q' && name !== 'branch')}${seq ? `#m${seq}` : ''}`
}

/** Where a new chat begins: in the project that is looked at. Other filters would hide it from its own list. */
export function newPath(): string {
  return `/${listQuery((name) => name === 'project' || name === 'sort')}`
}

function listQuery(keeps: (name: string) => boolean): string {
  const query = router.route.page === 'workbench' ? [...router.route.query].filter(([name]) => keeps(name)) : []
  const text = new URLSearchParams(query).toString()
  return text ? `?${text}` : ''
}
