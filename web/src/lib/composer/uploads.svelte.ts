/** Files that are uploaded before the message that they are attached to. */
import { errorMessage, randomKey, responseError, ApiError, apiUrl, withCsrfToken } from '../api/http'
import type { AttachmentPart } from '../api/schema'

export class Upload {
  progress = $state(0)
  part = $state.raw<AttachmentPart | null>(null)
  error = $state<string | null>(null)
  private request = new XMLHttpRequest()
  private readonly key = randomKey()

  constructor(readonly file: File) {}

  /** A file that the server already has, from a message that is being edited. */
  static fromPart(part: AttachmentPart): Upload {
    const upload = new Upload(new File([], part.name ?? part.media_type ?? '', { type: part.media_type ?? '' }))
    upload.part = part
    return upload
  }

  get size(): number {
    return this.part?.size ?? this.file.size
  }

  async start(): Promise<void> {
    try {
      this.part = await withCsrfToken((token) => this.send(token))
    } catch (error) {
      this.error = errorMessage(error)
    }
  }

  cancel(): void {
    this.request.abort()
  }

  // `fetch` does not report the progress of an upload.
  private send(token: string): Promise<AttachmentPart> {
    const request = this.request
    return new Promise((resolve, reject) => {
      request.open('POST', apiUrl('/blobs', { name: this.file.name }))
      request.setRequestHeader('X-CSRF-Token', token)
      request.setRequestHeader('Idempotency-Key', this.key)
      request.setRequestHeader('Content-Type', this.file.type || 'application/octet-stream')
      request.upload.onprogress = (event) => (this.progress = event.lengthComputable ? event.loaded / event.total : 0)
      request.onload = () => {
        if (request.status < 300) resolve(JSON.parse(request.responseText) as AttachmentPart)
        else reject(responseError(request.status, request.responseText))
      }
      request.onerror = () => reject(new ApiError(0, 'offline', 'The server does not answer.'))
      request.send(this.file)
    })
  }
}
