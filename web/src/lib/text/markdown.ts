/** The only place where text becomes HTML. Everything from a model or a stranger passes here.
 *
 * Three barriers: marked escapes raw HTML, DOMPurify keeps a short list of elements and attributes,
 * and the content security policy of the page blocks scripts and requests to other servers.
 */
import DOMPurify, { type Config } from 'dompurify'
import { Marked, type Token, type Tokens } from 'marked'

const ALLOWED: Config = {
  ALLOWED_TAGS: [
    'a',
    'b',
    'blockquote',
    'br',
    'code',
    'del',
    'em',
    'h1',
    'h2',
    'h3',
    'h4',
    'h5',
    'h6',
    'hr',
    'i',
    'li',
    'mark',
    'ol',
    'p',
    'pre',
    's',
    'span',
    'strong',
    'sub',
    'sup',
    'table',
    'tbody',
    'td',
    'th',
    'thead',
    'tr',
    'ul',
  ],
  ALLOWED_ATTR: ['align', 'class', 'dir', 'href', 'rel', 'start', 'target', 'title'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  // Otherwise DOMPurify checks these values against the URI pattern and drops them.
  ADD_URI_SAFE_ATTR: ['align', 'dir', 'start'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
}

/** Where these attributes are allowed and with which values. */
const ATTRIBUTE_RULES: Record<string, { tags: RegExp; value: RegExp }> = {
  align: { tags: /^T[DH]$/, value: /^(?:left|center|right)$/ },
  dir: { tags: /^/, value: /^(?:ltr|rtl|auto)$/ },
  start: { tags: /^OL$/, value: /^\d{1,9}$/ },
}

const ALLOWED_CLASSES = /^(?:language-[\w+#.-]{1,30}|hljs(?:-[\w-]+)?|image|task)$/

DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  const allowed = [...node.classList].filter((name) => ALLOWED_CLASSES.test(name))
  if (node.hasAttribute('class')) {
    if (allowed.length) node.setAttribute('class', allowed.join(' '))
    else node.removeAttribute('class')
  }
  for (const [name, { tags, value }] of Object.entries(ATTRIBUTE_RULES)) {
    const given = node.getAttribute(name)
    if (given !== null && !(tags.test(node.tagName) && value.test(given))) node.removeAttribute(name)
  }
  if (node.tagName === 'A') {
    node.setAttribute('rel', 'noopener noreferrer nofollow')
    node.setAttribute('target', '_blank')
  }
})

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)
}

const marked = new Marked({ gfm: true, breaks: true, async: false })
marked.use({
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    // Showing an image would send a request; a link with its text is enough.
    image: ({ href, text }: Tokens.Image) =>
      `<a class="image" href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
    checkbox: ({ checked }: Tokens.Checkbox) => `<span class="task">${checked ? '☑' : '☐'}</span> `,
  },
})

/** The blocks of a text, so that a stream renders only its last one again. */
export function blocks(text: string): Token[] {
  return marked.lexer(text).filter((token) => token.type !== 'space')
}

export function renderBlock(token: Token): DocumentFragment {
  return sanitize(marked.parser([token]))
}

/** Sanitize HTML that another library made from text. */
export function sanitize(html: string): DocumentFragment {
  return DOMPurify.sanitize(html, ALLOWED) as unknown as DocumentFragment
}
