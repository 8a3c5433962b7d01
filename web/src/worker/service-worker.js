// Lets the application open without a network. It caches only the application's own files:
// requests under /api, the login and downloads are never touched.
const SHELL = '{shell}'
const CACHE = 'sessionary-{version}'

self.addEventListener('install', (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(SHELL))
      .then(() => self.skipWaiting()),
  )
})

self.addEventListener('activate', (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  )
})

self.addEventListener('fetch', (event) => {
  const { request } = event
  const { origin, pathname } = new URL(request.url)
  if (request.method !== 'GET' || origin !== self.location.origin) return
  if (pathname.startsWith('/api/') || pathname.startsWith('/login')) return
  // Pages come from the server while it is reachable, so that a new version is seen at once.
  if (request.mode === 'navigate') event.respondWith(fetch(request).catch(() => caches.match('/')))
  else if (SHELL.includes(pathname)) event.respondWith(caches.match(pathname).then((kept) => kept ?? fetch(request)))
})
