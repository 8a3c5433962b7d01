/** Client-side routing with the History API. Hashes are used only for messages (`#m12`). */
export type PageName =
  'workbench' | 'search' | 'live' | 'questions' | 'usage' | 'import' | 'settings' | 'api' | 'unknown'

export interface Route {
  page: PageName
  session: string | null
  seq: number | null
  query: URLSearchParams
  path: string
  /** Whether the composer takes the focus as soon as the session opens. */
  focusesComposer?: boolean
}

const PAGES: Record<string, PageName> = {
  '/': 'workbench',
  '/search': 'search',
  '/live': 'live',
  '/questions': 'questions',
  '/usage': 'usage',
  '/import': 'import',
  '/settings': 'settings',
  '/api': 'api',
}

export function parseRoute(address: URL): Route {
  const path = address.pathname.replace(/\/+$/, '') || '/'
  const session = /^\/s\/([^/]+)$/.exec(path)?.[1]
  const seq = /^#m(\d+)$/.exec(address.hash)?.[1]
  return {
    page: session ? 'workbench' : (PAGES[path] ?? 'unknown'),
    session: session ? decode(session) : null,
    seq: seq ? Number(seq) : null,
    query: address.searchParams,
    path,
  }
}

/** Decode a path segment. An invalid one is returned unchanged and matches no session. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

class Router {
  route = $state.raw<Route>(parseRoute(new URL(location.href)))

  start(): void {
    addEventListener('popstate', () => this.update())
    document.addEventListener('click', (event) => this.openLink(event))
  }

  go(to: string, { replace = false, focusesComposer = false } = {}): void {
    const target = new URL(to, location.href)
    if (target.href !== location.href) history[replace ? 'replaceState' : 'pushState']({}, '', target)
    this.route = { ...parseRoute(new URL(location.href)), focusesComposer }
  }

  /** Return the current path with changed query parameters. */
  pathWithQuery(changes: Record<string, string | null>): string {
    const query = new URLSearchParams(this.route.query)
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === '') query.delete(name)
      else query.set(name, value)
    }
    const text = query.toString()
    return `${this.route.path}${text ? `?${text}` : ''}`
  }

  /** Stay on this page and change query parameters. */
  setQuery(changes: Record<string, string | null>): void {
    this.go(this.pathWithQuery(changes), { replace: true })
  }

  private update(): void {
    this.route = parseRoute(new URL(location.href))
  }

  private openLink(event: MouseEvent): void {
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

/** The path of a session. The filters of the list stay in it while the session is open. */
export function sessionPath(id: string, seq?: number | null): string {
  // The search words and the branch belong to the session that is open now.
  return `/s/${encodeURIComponent(id)}${listQuery((name) => name !== 'q' && name !== 'branch')}${seq ? `#m${seq}` : ''}`
}

/** The path of a new chat: in the same project, without the filters that would hide it from the list. */
export function newChatPath(): string {
  return `/${listQuery((name) => name === 'project' || name === 'sort')}`
}

function listQuery(keeps: (name: string) => boolean): string {
  const query = router.route.page === 'workbench' ? [...router.route.query].filter(([name]) => keeps(name)) : []
  const text = new URLSearchParams(query).toString()
  return text ? `?${text}` : ''
}
